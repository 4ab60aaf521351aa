// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <algorithm>
#include <cmath>
#include <vector>

#include "offload/kernels/convert.h"
#include "offload/kernels/exact_sum.h"
#include "offload/kernels/optimizer.h"
#include "tests/support/toy_trainer.h"

namespace castor {
namespace {

float RoundTo(DType dtype, float value) {
  return dtype == DType::kF32 ? value : BFloat16ToFloat(FloatToBFloat16(value));
}

class PlainTrainer {
 public:
  PlainTrainer(const ToyModel& model, const ToyRun& run, int world)
      : model_(model), run_(run), world_(world) {
    for (size_t p = 0; p < model.params.size(); ++p) {
      const size_t size = static_cast<size_t>(toy::SizeOf(model.params[p]));
      std::vector<float> values(size);
      for (size_t i = 0; i < size; ++i) {
        values[i] = toy::InitialValue(p, static_cast<int64_t>(i));
        // A frozen parameter has no master.
        if (!model.params[p].trainable) {
          values[i] = RoundTo(model.params[p].dtype, values[i]);
        }
      }
      weights_.push_back(std::move(values));
      exp_avg_.emplace_back(size, 0.0f);
      exp_avg_sq_.emplace_back(size, 0.0f);
    }
    updates_.assign(model.params.size(), 0);
  }

  // Returns the norm.
  double Step(int step, double clip_norm, OptimizerOptions optimizer) {
    std::vector<std::vector<float>> grads;
    ExactSum squares;
    for (size_t p = 0; p < weights_.size(); ++p) {
      grads.push_back(SumOfGradients(p, step));
      AddSquares(grads[p].data(), DType::kF32, std::ssize(grads[p]), &squares);
    }
    const double average = 1.0 / (static_cast<double>(world_) *
                                  static_cast<double>(run_.micro_batches));
    double clip = 1;
    double norm = 0;
    if (clip_norm > 0) {
      norm = std::sqrt(squares.Total()) * average;
      clip = std::min(1.0, clip_norm / (norm + 1e-6));
    }
    optimizer.lr = run_.lr;
    for (size_t p = 0; p < weights_.size(); ++p) {
      if (!EverUsed(p, step)) continue;
      OptimizerBuffers buffers;
      buffers.grad = grads[p].data();
      buffers.param = weights_[p].data();
      // Room for fp32 serves bf16 too.
      buffers.exp_avg = exp_avg_[p].data();
      buffers.exp_avg_sq = exp_avg_sq_[p].data();
      buffers.moment_dtype = optimizer.moment_dtype;
      ++updates_[p];
      buffers.rounding = MakeMomentRounding(optimizer, p, updates_[p], 0);
      OptimizerStepScalar(buffers, std::ssize(grads[p]),
                          ComputeOptimizerScalars(optimizer, updates_[p]),
                          static_cast<float>(clip * average));
    }
    return norm;
  }

  void Look(std::vector<uint64_t>& seen) const {
    for (size_t p = 0; p < weights_.size(); ++p) {
      const DType dtype = model_.params[p].dtype;
      const std::vector<std::byte> values = InDType(p);
      seen.push_back(
          toy::HashOf(values.data(), dtype, std::ssize(weights_[p])));
    }
  }

  std::vector<std::vector<float>> TakeWeights() { return std::move(weights_); }

 private:
  bool EverUsed(size_t param, int step) const {
    for (int a = 0; a < run_.micro_batches; ++a) {
      if (!toy::Uses(model_, run_, param, step, a)) continue;
      for (int r = 0; r < world_; ++r) {
        if (!toy::SkippedBy(run_, param, r)) return true;
      }
    }
    return false;
  }

  std::vector<std::byte> InDType(size_t param) const {
    const DType dtype = model_.params[param].dtype;
    const std::vector<float>& values = weights_[param];
    std::vector<std::byte> out(values.size() * 4);
    ConvertFromFloat(values.data(), std::ssize(values), dtype, out.data());
    return out;
  }

  // Summed over ranks, then over micro-batches, rounded after each.
  std::vector<float> SumOfGradients(size_t param, int step) const {
    const DType dtype = model_.params[param].dtype;
    const int64_t size = std::ssize(weights_[param]);
    const std::vector<std::byte> weight = InDType(param);
    std::vector<float> total(static_cast<size_t>(size), 0.0f);
    std::vector<float> widened(total.size());
    for (int a = 0; a < run_.micro_batches; ++a) {
      if (!toy::Uses(model_, run_, param, step, a)) continue;
      std::vector<float> sum(total.size(), 0.0f);
      for (int r = 0; r < world_; ++r) {
        if (toy::SkippedBy(run_, param, r)) continue;
        std::vector<std::byte> grad(weight.size(), std::byte{0});
        for (int use = toy::Tied(run_, param) ? 1 : 0; use >= 0; --use) {
          toy::AddGradient({param, r, step, a, use},
                           run_.blind ? nullptr : weight.data(), dtype, size,
                           grad.data());
        }
        ConvertToFloat(grad.data(), dtype, size, widened.data());
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += widened[i];
      }
      for (size_t i = 0; i < sum.size(); ++i) {
        total[i] = RoundTo(dtype, total[i] + RoundTo(dtype, sum[i]));
      }
    }
    return total;
  }

  const ToyModel& model_;
  const ToyRun& run_;
  const int world_;
  std::vector<std::vector<float>> weights_;
  std::vector<std::vector<float>> exp_avg_;
  std::vector<std::vector<float>> exp_avg_sq_;
  std::vector<int64_t> updates_;  // by parameter
};

}  // namespace

ToyResult TrainToyReference(const ToyModel& model, const ToyRun& run, int world,
                            double clip_norm,
                            const OptimizerOptions& optimizer) {
  ToyResult result;
  PlainTrainer trainer(model, run, world);
  for (int step = 0; step < run.steps; ++step) {
    trainer.Look(result.seen);
    result.norms.push_back(trainer.Step(step, clip_norm, optimizer));
  }
  trainer.Look(result.seen);
  result.weights = trainer.TakeWeights();
  return result;
}

}  // namespace castor
