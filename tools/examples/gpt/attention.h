// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_ATTENTION_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_ATTENTION_H_

// Causal multi-head self-attention, forward and backward, on plain arrays:
//
//   qkv            [batch * seq, 3 * embd]  a token's query, key and value,
//   each
//                                           head after head
//   probabilities  [batch, heads, seq, seq] row i: how token i weighs 0 ... i
//   y              [batch * seq, embd]
//
// Only blocks of rows on and below the diagonal are computed; the rest of
// `probabilities` is never read. For float and double; deterministic. Pure
// functions, thread-safe.

#include <cstdint>

namespace castor::gpt {

struct AttentionShape {
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t heads = 0;
  int64_t embd = 0;
};

template <typename T>
void AttentionForward(const AttentionShape& shape, const T* qkv,
                      T* probabilities, T* y);

// Elements of scratch that AttentionBackward needs.
int64_t AttentionScratch(const AttentionShape& shape);

// Overwrites `dqkv` and `probabilities`.
template <typename T>
void AttentionBackward(const AttentionShape& shape, const T* dy, const T* qkv,
                       T* probabilities, T* scratch, T* dqkv);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_ATTENTION_H_
