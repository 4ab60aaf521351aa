// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <algorithm>
#include <cmath>

#include "tools/examples/gpt/gemm.h"
#include "tools/examples/gpt/layers.h"

namespace castor::gpt {
namespace {

// Rows per block: large enough for products to be quick, small enough that
// little is computed above the diagonal.
constexpr int64_t kBlock = 64;

// One head of one sequence.
template <typename T>
struct Head {
  const T* q;
  const T* k;
  const T* v;
  int64_t row;   // elements from one token to the next in q, k, v
  int64_t size;  // of the head
  T scale;       // of the scores
};

template <typename T>
Head<T> HeadOf(const AttentionShape& shape, const T* qkv, int64_t sequence,
               int64_t head) {
  const int64_t size = shape.embd / shape.heads;
  const T* start = qkv + sequence * shape.seq * 3 * shape.embd + head * size;
  return {start,
          start + shape.embd,
          start + 2 * shape.embd,
          3 * shape.embd,
          size,
          T{1} / std::sqrt(static_cast<T>(size))};
}

// Softmax of row[0 ... valid), zeros up to `columns`.
template <typename T>
void CausalSoftmax(T* row, int64_t valid, int64_t columns) {
  const T largest = *std::max_element(row, row + valid);
  ExpMinus(row, valid, largest);
  const T sum = LaneSum<T>(valid, [&](int64_t i) { return row[i]; });
  const T scale = T{1} / sum;
  for (int64_t i = 0; i < valid; ++i) row[i] *= scale;
  std::fill(row + valid, row + columns, T{0});
}

template <typename T>
void HeadForward(const Head<T>& head, int64_t seq, T* p, T* y,
                 int64_t y_stride) {
  for (int64_t begin = 0; begin < seq; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, seq);
    const int64_t rows = end - begin;
    T* scores = p + begin * seq;
    Multiply<T>({rows, end, head.size}, {head.q + begin * head.row, head.row},
                Transposed(head.k, head.row), Into::kOverwrite, scores, seq,
                head.scale);
    for (int64_t i = begin; i < end; ++i)
      CausalSoftmax(p + i * seq, i + 1, end);
    Multiply<T>({rows, head.size, end}, {scores, seq}, {head.v, head.row},
                Into::kOverwrite, y + begin * y_stride, y_stride);
  }
}

// `dscores` is scratch for one block of rows.
template <typename T>
void HeadBackward(const Head<T>& head, int64_t seq, const T* dy,
                  int64_t dy_stride, T* p, T* dscores, T* dq, T* dk, T* dv) {
  // dv = p^T dy, column block by column block, before p is overwritten.
  for (int64_t begin = 0; begin < seq; begin += kBlock) {
    const int64_t columns = std::min(kBlock, seq - begin);
    Multiply<T>({columns, head.size, seq - begin},
                Transposed(p + begin * seq + begin, seq),
                {dy + begin * dy_stride, dy_stride}, Into::kOverwrite,
                dv + begin * head.row, head.row);
  }
  for (int64_t begin = 0; begin < seq; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, seq);
    const int64_t rows = end - begin;
    Multiply<T>({rows, end, head.size}, {dy + begin * dy_stride, dy_stride},
                Transposed(head.v, head.row), Into::kOverwrite, dscores, seq);
    for (int64_t i = begin; i < end; ++i) {
      T* row = p + i * seq;
      const T* drow = dscores + (i - begin) * seq;
      const T mean =
          LaneSum<T>(end, [&](int64_t j) { return row[j] * drow[j]; });
      for (int64_t j = 0; j < end; ++j) row[j] *= drow[j] - mean;
    }
    Multiply<T>({rows, head.size, end}, {p + begin * seq, seq},
                {head.k, head.row}, Into::kOverwrite, dq + begin * head.row,
                head.row, head.scale);
  }
  for (int64_t begin = 0; begin < seq; begin += kBlock) {
    const int64_t columns = std::min(kBlock, seq - begin);
    Multiply<T>({columns, head.size, seq - begin},
                Transposed(p + begin * seq + begin, seq),
                {head.q + begin * head.row, head.row}, Into::kOverwrite,
                dk + begin * head.row, head.row, head.scale);
  }
}

}  // namespace

template <typename T>
void AttentionForward(const AttentionShape& shape, const T* qkv,
                      T* probabilities, T* y) {
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const Head<T> head = HeadOf(shape, qkv, b, h);
      T* p = probabilities + (b * shape.heads + h) * shape.seq * shape.seq;
      HeadForward(head, shape.seq, p,
                  y + b * shape.seq * shape.embd + h * head.size, shape.embd);
    }
  }
}

int64_t AttentionScratch(const AttentionShape& shape) {
  return std::min(kBlock, shape.seq) * shape.seq;
}

template <typename T>
void AttentionBackward(const AttentionShape& shape, const T* dy, const T* qkv,
                       T* probabilities, T* scratch, T* dqkv) {
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const Head<T> head = HeadOf(shape, qkv, b, h);
      T* p = probabilities + (b * shape.heads + h) * shape.seq * shape.seq;
      T* dq = dqkv + (head.q - qkv);
      HeadBackward(head, shape.seq,
                   dy + b * shape.seq * shape.embd + h * head.size, shape.embd,
                   p, scratch, dq, dq + shape.embd, dq + 2 * shape.embd);
    }
  }
}

template void AttentionForward<float>(const AttentionShape&, const float*,
                                      float*, float*);
template void AttentionForward<double>(const AttentionShape&, const double*,
                                       double*, double*);
template void AttentionBackward<float>(const AttentionShape&, const float*,
                                       const float*, float*, float*, float*);
template void AttentionBackward<double>(const AttentionShape&, const double*,
                                        const double*, double*, double*,
                                        double*);

}  // namespace castor::gpt
