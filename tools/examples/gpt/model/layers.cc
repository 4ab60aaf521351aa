// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/model/layers.h"

#include <algorithm>
#include <cmath>

namespace castor::gpt {
namespace {

void AddRow(const float* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

// Rows per block: large enough for products to be quick, small enough that
// little is computed above the diagonal.
constexpr int64_t kBlock = 64;

// One head of one sequence.
struct Head {
  const float* q;
  const float* k;
  const float* v;
  int64_t row;   // elements from one token to the next in q, k, v
  int64_t size;  // of the head
  float scale;   // of the scores
};

Head HeadOf(const AttentionShape& shape, const float* qkv, int64_t sequence,
            int64_t head) {
  const int64_t size = shape.embd / shape.heads;
  const float* start =
      qkv + sequence * shape.seq * 3 * shape.embd + head * size;
  return {start,
          start + shape.embd,
          start + 2 * shape.embd,
          3 * shape.embd,
          size,
          1.0f / std::sqrt(static_cast<float>(size))};
}

// Softmax of row[0 ... valid), zeros up to `columns`.
void CausalSoftmax(float* row, int64_t valid, int64_t columns) {
  const float largest = *std::max_element(row, row + valid);
  ExpMinus(row, valid, largest);
  const float sum = LaneSum(valid, [&](int64_t i) { return row[i]; });
  const float scale = 1.0f / sum;
  for (int64_t i = 0; i < valid; ++i) row[i] *= scale;
  std::fill(row + valid, row + columns, 0.0f);
}

void HeadForward(const Head& head, int64_t seq, float* p, float* y,
                 int64_t y_stride) {
  for (int64_t begin = 0; begin < seq; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, seq);
    const int64_t rows = end - begin;
    float* scores = p + begin * seq;
    Multiply({rows, end, head.size}, {head.q + begin * head.row, head.row},
             Transposed(head.k, head.row), Into::kOverwrite, scores, seq,
             head.scale);
    for (int64_t i = begin; i < end; ++i)
      CausalSoftmax(p + i * seq, i + 1, end);
    Multiply({rows, head.size, end}, {scores, seq}, {head.v, head.row},
             Into::kOverwrite, y + begin * y_stride, y_stride);
  }
}

// `dscores` is scratch for one block of rows.
void HeadBackward(const Head& head, int64_t seq, const float* dy,
                  int64_t dy_stride, float* p, float* dscores, float* dq,
                  float* dk, float* dv) {
  // to = scale p^float from, column block by column block.
  const auto from_columns = [&](const float* from, int64_t stride, float* to,
                                float scale) {
    for (int64_t begin = 0; begin < seq; begin += kBlock) {
      const int64_t columns = std::min(kBlock, seq - begin);
      Multiply({columns, head.size, seq - begin},
               Transposed(p + begin * seq + begin, seq),
               {from + begin * stride, stride}, Into::kOverwrite,
               to + begin * head.row, head.row, scale);
    }
  };
  from_columns(dy, dy_stride, dv, 1.0f);  // before p is overwritten
  for (int64_t begin = 0; begin < seq; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, seq);
    const int64_t rows = end - begin;
    Multiply({rows, end, head.size}, {dy + begin * dy_stride, dy_stride},
             Transposed(head.v, head.row), Into::kOverwrite, dscores, seq);
    for (int64_t i = begin; i < end; ++i) {
      float* row = p + i * seq;
      const float* drow = dscores + (i - begin) * seq;
      const float mean =
          LaneSum(end, [&](int64_t j) { return row[j] * drow[j]; });
      for (int64_t j = 0; j < end; ++j) row[j] *= drow[j] - mean;
    }
    Multiply({rows, head.size, end}, {p + begin * seq, seq}, {head.k, head.row},
             Into::kOverwrite, dq + begin * head.row, head.row, head.scale);
  }
  from_columns(head.q, head.row, dk, head.scale);
}

}  // namespace

void EmbeddingForward(const int* tokens, int64_t rows, int64_t seq,
                      int64_t embd, const float* tokens_table,
                      const float* positions_table, float* x) {
  for (int64_t n = 0; n < rows; ++n) {
    const float* token = tokens_table + tokens[n] * embd;
    const float* position = positions_table + n % seq * embd;
    float* out = x + n * embd;
    for (int64_t i = 0; i < embd; ++i) out[i] = token[i] + position[i];
  }
}

void EmbeddingBackward(const float* dx, const int* index, int64_t rows,
                       int64_t embd, float* grad_table) {
  for (int64_t n = 0; n < rows; ++n) {
    AddRow(dx + n * embd, embd, grad_table + index[n] * embd);
  }
}

void LayerNormForward(const float* x, int64_t rows, int64_t embd,
                      const float* weight, const float* bias, float* y,
                      float* mean, float* inverse_deviation) {
  const float count = static_cast<float>(embd);
  for (int64_t n = 0; n < rows; ++n) {
    const float* row = x + n * embd;
    const float m = LaneSum(embd, [&](int64_t i) { return row[i]; }) / count;
    const float variance =
        LaneSum(embd, [&](int64_t i) { return (row[i] - m) * (row[i] - m); }) /
        count;
    const float r = 1.0f / std::sqrt(variance + 1e-5f);
    float* out = y + n * embd;
    for (int64_t i = 0; i < embd; ++i) {
      out[i] = (row[i] - m) * r * weight[i] + bias[i];
    }
    mean[n] = m;
    inverse_deviation[n] = r;
  }
}

void LayerNormBackward(const float* dy, const float* x, const float* mean,
                       const float* inverse_deviation, int64_t rows,
                       int64_t embd, const float* weight, float* dx,
                       float* grad_weight, float* grad_bias) {
  const float count = static_cast<float>(embd);
  for (int64_t n = 0; n < rows; ++n) {
    const float* row = x + n * embd;
    const float* drow = dy + n * embd;
    const float m = mean[n];
    const float r = inverse_deviation[n];
    // With z = (x - m) r and dz = dy weight:
    // dx = (dz - mean(dz) - z mean(dz z)) r.
    const float mean_dz =
        LaneSum(embd, [&](int64_t i) { return drow[i] * weight[i]; }) / count;
    const float mean_dz_z =
        LaneSum(embd,
                [&](int64_t i) {
                  return drow[i] * weight[i] * ((row[i] - m) * r);
                }) /
        count;
    float* out = dx + n * embd;
    for (int64_t i = 0; i < embd; ++i) {
      const float z = (row[i] - m) * r;
      out[i] += (drow[i] * weight[i] - mean_dz - z * mean_dz_z) * r;
      grad_weight[i] += drow[i] * z;
      grad_bias[i] += drow[i];
    }
  }
}

void LinearForward(const LinearShape& shape, const float* x,
                   const float* weight, const float* bias, Into into,
                   float* y) {
  for (int64_t n = 0; n < shape.rows; ++n) {
    float* row = y + n * shape.out;
    if (into == Into::kAdd) {
      AddRow(bias, shape.out, row);
    } else {
      std::copy_n(bias, shape.out, row);
    }
  }
  Multiply({shape.rows, shape.out, shape.in}, {x, shape.in},
           {weight, shape.out}, Into::kAdd, y, shape.out);
}

void LinearBackwardInput(const LinearShape& shape, const float* dy,
                         const float* weight, float* dx) {
  Multiply({shape.rows, shape.in, shape.out}, {dy, shape.out},
           Transposed(weight, shape.out), Into::kOverwrite, dx, shape.in);
}

void LinearBackwardParams(const LinearShape& shape, const float* dy,
                          const float* x, float* grad_weight,
                          float* grad_bias) {
  Multiply({shape.in, shape.out, shape.rows}, Transposed(x, shape.in),
           {dy, shape.out}, Into::kAdd, grad_weight, shape.out);
  for (int64_t n = 0; n < shape.rows; ++n) {
    AddRow(dy + n * shape.out, shape.out, grad_bias);
  }
}

double CrossEntropy(float* logits, const int* targets, int64_t rows,
                    int64_t vocab) {
  double total = 0;
  const float share = 1.0f / static_cast<float>(rows);
  for (int64_t n = 0; n < rows; ++n) {
    float* row = logits + n * vocab;
    const float largest = *std::max_element(row, row + vocab);
    const float target = row[targets[n]];
    ExpMinus(row, vocab, largest);
    const float sum = LaneSum(vocab, [&](int64_t i) { return row[i]; });
    total += static_cast<double>(std::log(sum) - (target - largest));
    const float scale = share / sum;
    for (int64_t i = 0; i < vocab; ++i) row[i] *= scale;
    row[targets[n]] -= share;
  }
  return total / static_cast<double>(rows);
}

void AttentionForward(const AttentionShape& shape, const float* qkv,
                      float* probabilities, float* y) {
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const Head head = HeadOf(shape, qkv, b, h);
      float* p = probabilities + (b * shape.heads + h) * shape.seq * shape.seq;
      HeadForward(head, shape.seq, p,
                  y + b * shape.seq * shape.embd + h * head.size, shape.embd);
    }
  }
}

int64_t AttentionScratch(const AttentionShape& shape) {
  return std::min(kBlock, shape.seq) * shape.seq;
}

void AttentionBackward(const AttentionShape& shape, const float* dy,
                       const float* qkv, float* probabilities, float* scratch,
                       float* dqkv) {
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const Head head = HeadOf(shape, qkv, b, h);
      float* p = probabilities + (b * shape.heads + h) * shape.seq * shape.seq;
      float* dq = dqkv + (head.q - qkv);
      HeadBackward(head, shape.seq,
                   dy + b * shape.seq * shape.embd + h * head.size, shape.embd,
                   p, scratch, dq, dq + shape.embd, dq + 2 * shape.embd);
    }
  }
}

}  // namespace castor::gpt
