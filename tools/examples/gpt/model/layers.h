// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_MODEL_LAYERS_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_MODEL_LAYERS_H_

// The layers of a GPT, forward and backward, on plain row-major arrays: `rows`
// tokens of so many columns each. A backward function adds to the gradients of
// parameters (names starting with `grad_`) and, where its comment says so, to
// that of its input. Deterministic. Pure functions,
// thread-safe.

#include <cstdint>

#include "tools/examples/gpt/model/gemm.h"

namespace castor::gpt {

// x[n] = tokens_table[tokens[n]] + positions_table[n mod seq].
void EmbeddingForward(const int* tokens, int64_t rows, int64_t seq,
                      int64_t embd, const float* tokens_table,
                      const float* positions_table, float* x);
// What the gradient `dx` adds to one table, whose row for token n is index[n].
void EmbeddingBackward(const float* dx, const int* index, int64_t rows,
                       int64_t embd, float* grad_table);

// y = (x - mean) / sqrt(variance + 1e-5) * weight + bias by row. Keeps mean and
// 1 / sqrt(...) of every row.
void LayerNormForward(const float* x, int64_t rows, int64_t embd,
                      const float* weight, const float* bias, float* y,
                      float* mean, float* inverse_deviation);
// Adds to `dx`. `x`, `mean` and `inverse_deviation` as the forward had them.
void LayerNormBackward(const float* dy, const float* x, const float* mean,
                       const float* inverse_deviation, int64_t rows,
                       int64_t embd, const float* weight, float* dx,
                       float* grad_weight, float* grad_bias);

struct LinearShape {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
};

// y = or += x weight + bias, weight being [in, out].
void LinearForward(const LinearShape& shape, const float* x,
                   const float* weight, const float* bias, Into into, float* y);
// dx = dy weight^float. Overwrites.
void LinearBackwardInput(const LinearShape& shape, const float* dy,
                         const float* weight, float* dx);
void LinearBackwardParams(const LinearShape& shape, const float* dy,
                          const float* x, float* grad_weight, float* grad_bias);

// The mean over rows of -log softmax(logits)[target]; `logits` become its
// gradient.
double CrossEntropy(float* logits, const int* targets, int64_t rows,
                    int64_t vocab);

// Causal multi-head self-attention, forward and backward, on plain arrays:
//
//   qkv            [batch * seq, 3 * embd]  a token's query, key and value;
//                                           of each, head after head
//   probabilities  [batch, heads, seq, seq] row i: how token i weighs 0 ... i
//   y              [batch * seq, embd]
//
// Only blocks of rows on and below the diagonal are computed; the rest of
// `probabilities` is never read.
struct AttentionShape {
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t heads = 0;
  int64_t embd = 0;
};

void AttentionForward(const AttentionShape& shape, const float* qkv,
                      float* probabilities, float* y);

// Elements of scratch that AttentionBackward needs.
int64_t AttentionScratch(const AttentionShape& shape);

// Overwrites `dqkv` and `probabilities`.
void AttentionBackward(const AttentionShape& shape, const float* dy,
                       const float* qkv, float* probabilities, float* scratch,
                       float* dqkv);

// The functions of one element that cost a model most after its products run on
// whatever vectors the machine has (Highway).

// y = GELU(x), the tanh form: with u = sqrt(2/pi) (x + 0.044715 x^3),
// 0.5 x (1 + tanh u) = x / (1 + exp(-2u)).
void Gelu(const float* x, int64_t count, float* y);

// The same, for the way back: `x` becomes GELU's slope there.
void GeluAndSlope(float* x, int64_t count, float* y);

// x = exp(x - shift).
void ExpMinus(float* x, int64_t count, float shift);

// The sum of term(0) ... term(count - 1), whose order is fixed and which a
// compiler may still vectorise: term i goes to lane i mod 16, and the lanes are
// folded in halves. The same bits on every instruction set.
template <class Term>
float LaneSum(int64_t count, const Term& term) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
  }
  for (; i < count; ++i) lanes[i % kLanes] += term(i);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_MODEL_LAYERS_H_
