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

template <typename T>
void AttentionForward(const AttentionShape& shape, const T* qkv,
                      T* probabilities, T* y);

// Elements of scratch that AttentionBackward needs.
int64_t AttentionScratch(const AttentionShape& shape);

// Overwrites `dqkv` and `probabilities`.
template <typename T>
void AttentionBackward(const AttentionShape& shape, const T* dy, const T* qkv,
                       T* probabilities, T* scratch, T* dqkv);

// The functions of one element that cost a model most after its products run on
// whatever vectors the machine has (Highway), with the same bits on all of
// them: separate multiplies and adds, and nothing summed over elements.

// y = GELU(x), the tanh form: with u = sqrt(2/pi) (x + 0.044715 x^3),
// 0.5 x (1 + tanh u) = x / (1 + exp(-2u)).
void Gelu(const float* x, int64_t count, float* y);
void Gelu(const double* x, int64_t count, double* y);

// The same, for the way back: `x` becomes GELU's slope there.
void GeluAndSlope(float* x, int64_t count, float* y);
void GeluAndSlope(double* x, int64_t count, double* y);

// x = exp(x - shift), within two units in the last place. Differences are
// clamped to where the result is a normal number.
void ExpMinus(float* x, int64_t count, float shift);
void ExpMinus(double* x, int64_t count, double shift);

// The sum of term(0) ... term(count - 1), whose order is fixed and which a
// compiler may still vectorise: term i goes to lane i mod 16, and the lanes are
// folded in halves. The same bits on every instruction set.
template <typename T, class Term>
T LaneSum(int64_t count, const Term& term) {
  constexpr int kLanes = 16;
  T lanes[kLanes] = {};
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

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_LAYERS_H_
