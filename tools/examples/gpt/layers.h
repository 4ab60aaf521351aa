// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_LAYERS_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_LAYERS_H_

// The layers of a GPT, forward and backward, on plain row-major arrays: `rows`
// tokens of so many columns each. A backward function adds to the gradients of
// parameters (names starting with `grad_`) and, where its comment says so, to
// that of its input. For float and double; deterministic. Pure functions,
// thread-safe.

#include <cstdint>

namespace castor::gpt {

// x[n] = tokens_table[tokens[n]] + positions_table[n mod seq].
template <typename T>
void EmbeddingForward(const int* tokens, int64_t rows, int64_t seq,
                      int64_t embd, const T* tokens_table,
                      const T* positions_table, T* x);
// What the gradient `dx` adds to one table, whose row for token n is index[n].
template <typename T>
void EmbeddingBackward(const T* dx, const int* index, int64_t rows,
                       int64_t embd, T* grad_table);

// y = (x - mean) / sqrt(variance + 1e-5) * weight + bias by row. Keeps mean and
// 1 / sqrt(...) of every row.
template <typename T>
void LayerNormForward(const T* x, int64_t rows, int64_t embd, const T* weight,
                      const T* bias, T* y, T* mean, T* inverse_deviation);
// Adds to `dx`. `x`, `mean` and `inverse_deviation` as the forward had them.
template <typename T>
void LayerNormBackward(const T* dy, const T* x, const T* mean,
                       const T* inverse_deviation, int64_t rows, int64_t embd,
                       const T* weight, T* dx, T* grad_weight, T* grad_bias);

struct LinearShape {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
};

// y = x weight + bias, weight being [in, out].
template <typename T>
void LinearForward(const LinearShape& shape, const T* x, const T* weight,
                   const T* bias, T* y);
// y += x weight + bias: a branch's way back into the residual stream.
template <typename T>
void LinearForwardAdd(const LinearShape& shape, const T* x, const T* weight,
                      const T* bias, T* y);
// dx = dy weight^T. Overwrites.
template <typename T>
void LinearBackwardInput(const LinearShape& shape, const T* dy, const T* weight,
                         T* dx);
template <typename T>
void LinearBackwardParams(const LinearShape& shape, const T* dy, const T* x,
                          T* grad_weight, T* grad_bias);

// to[i] *= from[i].
template <typename T>
void MultiplyInto(const T* from, int64_t count, T* to);

// The mean over rows of -log softmax(logits)[target]; `logits` become its
// gradient.
template <typename T>
double CrossEntropy(T* logits, const int* targets, int64_t rows, int64_t vocab);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_LAYERS_H_
