// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/layers.h"

#include <algorithm>
#include <cmath>

#include "tools/examples/gpt/gemm.h"

namespace castor::gpt {
namespace {

template <typename T>
void AddRow(const T* from, int64_t count, T* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

template <typename T>
void AddRows(const T* from, int64_t rows, int64_t columns, T* to) {
  for (int64_t n = 0; n < rows; ++n) AddRow(from + n * columns, columns, to);
}

}  // namespace

template <typename T>
void EmbeddingForward(const int* tokens, int64_t rows, int64_t seq,
                      int64_t embd, const T* tokens_table,
                      const T* positions_table, T* x) {
  for (int64_t n = 0; n < rows; ++n) {
    const T* token = tokens_table + tokens[n] * embd;
    const T* position = positions_table + n % seq * embd;
    T* out = x + n * embd;
    for (int64_t i = 0; i < embd; ++i) out[i] = token[i] + position[i];
  }
}

template <typename T>
void EmbeddingBackward(const T* dx, const int* index, int64_t rows,
                       int64_t embd, T* grad_table) {
  for (int64_t n = 0; n < rows; ++n) {
    AddRow(dx + n * embd, embd, grad_table + index[n] * embd);
  }
}

template <typename T>
void LayerNormForward(const T* x, int64_t rows, int64_t embd, const T* weight,
                      const T* bias, T* y, T* mean, T* inverse_deviation) {
  const T count = static_cast<T>(embd);
  for (int64_t n = 0; n < rows; ++n) {
    const T* row = x + n * embd;
    const T m = LaneSum<T>(embd, [&](int64_t i) { return row[i]; }) / count;
    const T variance =
        LaneSum<T>(embd,
                   [&](int64_t i) { return (row[i] - m) * (row[i] - m); }) /
        count;
    const T r = T{1} / std::sqrt(variance + T(1e-5));
    T* out = y + n * embd;
    for (int64_t i = 0; i < embd; ++i) {
      out[i] = (row[i] - m) * r * weight[i] + bias[i];
    }
    mean[n] = m;
    inverse_deviation[n] = r;
  }
}

template <typename T>
void LayerNormBackward(const T* dy, const T* x, const T* mean,
                       const T* inverse_deviation, int64_t rows, int64_t embd,
                       const T* weight, T* dx, T* grad_weight, T* grad_bias) {
  const T count = static_cast<T>(embd);
  for (int64_t n = 0; n < rows; ++n) {
    const T* row = x + n * embd;
    const T* drow = dy + n * embd;
    const T m = mean[n];
    const T r = inverse_deviation[n];
    // With z = (x - m) r and dz = dy weight:
    // dx = (dz - mean(dz) - z mean(dz z)) r.
    const T mean_dz =
        LaneSum<T>(embd, [&](int64_t i) { return drow[i] * weight[i]; }) /
        count;
    const T mean_dz_z =
        LaneSum<T>(embd,
                   [&](int64_t i) {
                     return drow[i] * weight[i] * ((row[i] - m) * r);
                   }) /
        count;
    T* out = dx + n * embd;
    for (int64_t i = 0; i < embd; ++i) {
      const T z = (row[i] - m) * r;
      out[i] += (drow[i] * weight[i] - mean_dz - z * mean_dz_z) * r;
      grad_weight[i] += drow[i] * z;
      grad_bias[i] += drow[i];
    }
  }
}

template <typename T>
void LinearForward(const LinearShape& shape, const T* x, const T* weight,
                   const T* bias, T* y) {
  for (int64_t n = 0; n < shape.rows; ++n) {
    std::copy_n(bias, shape.out, y + n * shape.out);
  }
  Multiply<T>({shape.rows, shape.out, shape.in}, {x, shape.in},
              {weight, shape.out}, Into::kAdd, y, shape.out);
}

template <typename T>
void LinearForwardAdd(const LinearShape& shape, const T* x, const T* weight,
                      const T* bias, T* y) {
  for (int64_t n = 0; n < shape.rows; ++n) {
    AddRow(bias, shape.out, y + n * shape.out);
  }
  Multiply<T>({shape.rows, shape.out, shape.in}, {x, shape.in},
              {weight, shape.out}, Into::kAdd, y, shape.out);
}

template <typename T>
void LinearBackwardInput(const LinearShape& shape, const T* dy, const T* weight,
                         T* dx) {
  Multiply<T>({shape.rows, shape.in, shape.out}, {dy, shape.out},
              Transposed(weight, shape.out), Into::kOverwrite, dx, shape.in);
}

template <typename T>
void LinearBackwardParams(const LinearShape& shape, const T* dy, const T* x,
                          T* grad_weight, T* grad_bias) {
  Multiply<T>({shape.in, shape.out, shape.rows}, Transposed(x, shape.in),
              {dy, shape.out}, Into::kAdd, grad_weight, shape.out);
  AddRows(dy, shape.rows, shape.out, grad_bias);
}

template <typename T>
void MultiplyInto(const T* from, int64_t count, T* to) {
  for (int64_t i = 0; i < count; ++i) to[i] *= from[i];
}

template <typename T>
double CrossEntropy(T* logits, const int* targets, int64_t rows,
                    int64_t vocab) {
  double total = 0;
  const T share = T{1} / static_cast<T>(rows);
  for (int64_t n = 0; n < rows; ++n) {
    T* row = logits + n * vocab;
    const T largest = *std::max_element(row, row + vocab);
    const T target = row[targets[n]];
    ExpMinus(row, vocab, largest);
    const T sum = LaneSum<T>(vocab, [&](int64_t i) { return row[i]; });
    total += static_cast<double>(std::log(sum) - (target - largest));
    const T scale = share / sum;
    for (int64_t i = 0; i < vocab; ++i) row[i] *= scale;
    row[targets[n]] -= share;
  }
  return total / static_cast<double>(rows);
}

#define CASTOR_GPT_LAYERS(T)                                                   \
  template void EmbeddingForward<T>(const int*, int64_t, int64_t, int64_t,     \
                                    const T*, const T*, T*);                   \
  template void EmbeddingBackward<T>(const T*, const int*, int64_t, int64_t,   \
                                     T*);                                      \
  template void LayerNormForward<T>(const T*, int64_t, int64_t, const T*,      \
                                    const T*, T*, T*, T*);                     \
  template void LayerNormBackward<T>(const T*, const T*, const T*, const T*,   \
                                     int64_t, int64_t, const T*, T*, T*, T*);  \
  template void LinearForward<T>(const LinearShape&, const T*, const T*,       \
                                 const T*, T*);                                \
  template void LinearForwardAdd<T>(const LinearShape&, const T*, const T*,    \
                                    const T*, T*);                             \
  template void LinearBackwardInput<T>(const LinearShape&, const T*, const T*, \
                                       T*);                                    \
  template void LinearBackwardParams<T>(const LinearShape&, const T*,          \
                                        const T*, T*, T*);                     \
  template void MultiplyInto<T>(const T*, int64_t, T*);                        \
  template double CrossEntropy<T>(T*, const int*, int64_t, int64_t)

CASTOR_GPT_LAYERS(float);
CASTOR_GPT_LAYERS(double);

}  // namespace castor::gpt
