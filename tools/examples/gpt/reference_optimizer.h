// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_REFERENCE_OPTIMIZER_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_REFERENCE_OPTIMIZER_H_

// Part of the reference (reference_trainer.h). AdamW and global-norm clipping
// on plain arrays: what a Castor run of one rank must equal bit by bit. Scalar,
// and written from the formulas alone:
//
//   average = 1 / micro_batches
//   norm    = sqrt(sum of squares of summed gradients) * average
//   clip    = min(1, clip_norm / (norm + 1e-6)), 1 without clipping
//   factor  = clip * average, all so far in fp64, then rounded to fp32
//   g = gradient * factor
//   p = p * (1 - lr * weight_decay)
//   m = m * beta1 + g * (1 - beta1)
//   v = v * beta2 + (g * g) * (1 - beta2)
//   p = p - lr / (1 - beta1^t) * (m / (sqrt(v) / sqrt(1 - beta2^t) + eps))
//
// with products and sums in fp32, scalars in fp64 rounded to fp32. Owns the
// moments. Thread-compatible.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "tools/examples/gpt/plain_params.h"

namespace castor::gpt {

// The sum of squares of all gradients as Castor defines it, written again from
// the definition and in another way, so that an agreement means something:
// squares in fp64 over blocks of 64 elements from a parameter's start (element
// i of a block in lane i mod 8, neighbouring lanes folded, then pairs, then
// quadruples), block sums added exactly. Here the exact sum is one long binary
// number with carries.
class LongSum {
 public:
  // Adds the squares of one parameter's gradient.
  void AddSquares(std::span<const float> gradient);

  // Rounded to nearest even; infinity where a gradient was not finite.
  double Total() const;

 private:
  // REQUIRES: value is finite and not negative.
  void Add(double value);
  bool Bit(int i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }

  // In units of the least double, 2^-1074. Doubles end below 2^1024, and 2^62
  // of them fit.
  static constexpr int kWords = 34;
  std::array<uint64_t, kWords> words_{};
  bool finite_ = true;
};

struct ReferenceAdamW {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  std::vector<bool> no_decay = {};  // by ParamId; empty: all decay
  double clip_norm = 0;             // 0: no clipping
};

class ReferenceOptimizer {
 public:
  explicit ReferenceOptimizer(const ReferenceAdamW& options)
      : options_(options) {}

  struct Outcome {
    double grad_norm = 0;  // 0 without clipping
    bool applied = true;   // false: a gradient was not finite, nothing changed
  };
  // Updates all parameters with the gradients of a step of `micro_batches`.
  Outcome Step(PlainParams<float>& params, double lr, int micro_batches);

 private:
  struct Moments {
    std::vector<float> first;
    std::vector<float> second;
  };

  void Update(PlainParams<float>& params, ParamId id, double lr, float factor);

  ReferenceAdamW options_;
  int64_t steps_ = 0;
  std::vector<Moments> moments_;  // by ParamId
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_REFERENCE_OPTIMIZER_H_
