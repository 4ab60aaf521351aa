// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "collectives/loss_scaler.h"
#include "collectives/optimizer_groups.h"
#include "collectives/zero_options.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/exact_sum.h"
#include "offload/kernels/optimizer.h"
#include "tests/support/toys/toy_trainer.h"

namespace castor {
namespace {

float RoundTo(DType dtype, float value) {
  float rounded = 0;
  std::byte bytes[4];
  ConvertFromFloat(&value, 1, dtype, bytes);
  ConvertToFloat(bytes, dtype, 1, &rounded);
  return rounded;
}

class PlainTrainer {
 public:
  PlainTrainer(const ToyModel& model, const ToyRun& run, int world,
               const ZeroOptions& options)
      : model_(model), run_(run), world_(world), options_(options) {
    if (options.loss_scaling.kind != LossScalingKind::kNone) {
      loss_scale_ = options.loss_scaling.initial;
    }
    for (size_t p = 0; p < model.params.size(); ++p) {
      const size_t size = static_cast<size_t>(toy::SizeOf(model.params[p]));
      std::vector<float> values(size);
      for (size_t i = 0; i < size; ++i) {
        values[i] = toy::InitialValue(model.params[p].dtype, p,
                                      static_cast<int64_t>(i));
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
  double Step(int step) {
    std::vector<std::vector<float>> grads;
    ExactSum squares;
    for (size_t p = 0; p < weights_.size(); ++p) {
      grads.push_back(SumOfGradients(p, step));
      AddSquares(grads[p].data(), DType::kF32, std::ssize(grads[p]), &squares);
    }
    const double average =
        1.0 / (static_cast<double>(world_) *
               static_cast<double>(run_.micro_batches) * loss_scale_);
    const bool scaled = options_.loss_scaling.kind != LossScalingKind::kNone;
    double clip = 1;
    double norm = 0;
    if (scaled || options_.clip_norm > 0) {
      norm = std::sqrt(squares.Total()) * average;
      if (squares.overflowed()) return norm;
    }
    if (options_.clip_norm > 0) {
      clip = std::min(1.0, options_.clip_norm / (norm + 1e-6));
    }
    for (size_t p = 0; p < weights_.size(); ++p) {
      if (!EverUsed(p, step)) continue;
      const OptimizerOptions optimizer = OptimizerOf(p, step);
      OptimizerBuffers buffers;
      buffers.grad = grads[p].data();
      buffers.param = weights_[p].data();
      // Room for fp32 serves bf16 and blocks, too.
      buffers.exp_avg = exp_avg_[p].data();
      buffers.exp_avg_sq = exp_avg_sq_[p].data();
      buffers.moment_dtype = optimizer.moment_dtype;
      if (IsBlocks8(optimizer.moment_dtype) && std::ssize(grads[p]) < 4096) {
        buffers.moment_dtype = DType::kF32;
      }
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
  OptimizerOptions OptimizerOf(size_t param, int step) const {
    OptimizerOptions optimizer = options_.optimizer;
    optimizer.lr = run_.lr;
    const std::string name =
        model_.groups.empty() ? std::string() : model_.groups[param];
    for (const OptimizerGroup& group : options_.groups) {
      if (group.name != name) continue;
      optimizer.lr = run_.lr * group.lr_scale;
      if (group.beta1) optimizer.beta1 = *group.beta1;
      if (group.beta2) optimizer.beta2 = *group.beta2;
      if (group.eps) optimizer.eps = *group.eps;
      if (group.weight_decay) optimizer.weight_decay = *group.weight_decay;
    }
    if (run_.rate) optimizer.lr = run_.rate(name, step);
    return optimizer;
  }

  bool EverUsed(size_t param, int step) const {
    for (int a = 0; a < run_.micro_batches; ++a) {
      if (!toy::Uses(model_, run_, param, step, a)) continue;
      for (int r = 0; r < world_; ++r) {
        if (!toy::SkippedBy(run_, param, r, step, a)) return true;
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

  // Summed over ranks, then over micro-batches, or the other way round where
  // they are reduced once; rounded after each.
  std::vector<float> SumOfGradients(size_t param, int step) const {
    const DType dtype = toy::GradDType(model_.params[param].dtype,
                                       options_.grad_mode == GradMode::kFp32);
    const auto size = static_cast<size_t>(toy::SizeOf(model_.params[param]));
    std::vector<float> total(size, 0.0f);
    const float room = std::ldexp(1.0f, Headroom());
    const bool once = options_.accumulation == AccumulationOrder::kLast;
    for (int a = 0; a < (once ? 1 : run_.micro_batches); ++a) {
      std::vector<float> sum(size, 0.0f);
      for (int r = 0; r < world_; ++r) {
        const std::vector<float> widened = GradientsOf(
            param, step, r, a, once ? run_.micro_batches : a + 1, dtype);
        for (size_t i = 0; i < size; ++i) {
          sum[i] += RoundTo(dtype, widened[i] / room);
        }
      }
      for (size_t i = 0; i < size; ++i) {
        total[i] = RoundTo(dtype, total[i] + RoundTo(dtype, sum[i]));
      }
    }
    for (float& value : total) value *= room;
    return total;
  }

  // By which power of two gradients are divided before they are added up, where
  // some are of fp16.
  int Headroom() const {
    if (options_.grad_mode == GradMode::kFp32 ||
        std::none_of(model_.params.begin(), model_.params.end(),
                     [](const ParamSpec& param) {
                       return param.trainable && param.dtype == DType::kF16;
                     })) {
      return 0;
    }
    const bool each = options_.accumulation == AccumulationOrder::kEach;
    const int sums = world_ * (each && run_.declares ? run_.micro_batches : 1);
    return static_cast<int>(std::ceil(std::log2(sums)));
  }

  // Of one rank, in micro-batches [begin, end), added up.
  std::vector<float> GradientsOf(size_t param, int step, int rank, int begin,
                                 int end, DType dtype) const {
    const int64_t size = std::ssize(weights_[param]);
    const std::vector<std::byte> weight = InDType(param);
    std::vector<std::byte> grad(static_cast<size_t>(size) * 4, std::byte{0});
    for (int a = begin; a < end; ++a) {
      if (!toy::Uses(model_, run_, param, step, a) ||
          toy::SkippedBy(run_, param, rank, step, a)) {
        continue;
      }
      for (int use = toy::Tied(run_, param) ? 1 : 0; use >= 0; --use) {
        const toy::GradPlace place = {
            .param = param,
            .rank = rank,
            .step = step,
            .micro_batch = a,
            .use = use,
            .overflows = toy::Overflows(run_, rank, step, a, param),
            .loss_scale = loss_scale_};
        toy::AddGradient(place, run_.blind ? nullptr : weight.data(),
                         model_.params[param].dtype, size, grad.data(), dtype);
      }
    }
    std::vector<float> widened(static_cast<size_t>(size));
    ConvertToFloat(grad.data(), dtype, size, widened.data());
    return widened;
  }

  const ToyModel& model_;
  const ToyRun& run_;
  const int world_;
  const ZeroOptions& options_;
  double loss_scale_ = 1;
  std::vector<std::vector<float>> weights_;
  std::vector<std::vector<float>> exp_avg_;
  std::vector<std::vector<float>> exp_avg_sq_;
  std::vector<int64_t> updates_;  // by parameter
};

}  // namespace

ToyResult TrainToyReference(const ToyModel& model, const ToyRun& run, int world,
                            const ZeroOptions& options) {
  ToyResult result;
  PlainTrainer trainer(model, run, world, options);
  for (int step = 0; step < run.steps; ++step) {
    trainer.Look(result.seen);
    result.norms.push_back(trainer.Step(step));
  }
  trainer.Look(result.seen);
  result.weights = trainer.TakeWeights();
  return result;
}

ToyResult TrainToyReference(const ToyModel& model, const ToyRun& run, int world,
                            double clip_norm,
                            const OptimizerOptions& optimizer) {
  ZeroOptions options;
  options.clip_norm = clip_norm;
  options.optimizer = optimizer;
  return TrainToyReference(model, run, world, options);
}

}  // namespace castor
