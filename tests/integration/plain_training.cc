// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/integration/plain_training.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "collectives/lr_schedule.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/exact_sum.h"
#include "tools/examples/gpt/model/gemm.h"
#include "tools/examples/gpt/model/gpt_params.h"
#include "tools/examples/gpt/model/model.h"

namespace castor::gpt {
namespace {

struct Arrays {
  std::vector<float> master;
  std::vector<float> values;  // the master as the model sees it
  std::vector<float> open;    // a gradient that is being made
  std::vector<float> part;    // a micro-batch's gradient
  std::vector<float> sum;     // a step's
  std::vector<float> exp_avg;
  std::vector<float> exp_avg_sq;
};

class PlainParams final : public ParamSource {
 public:
  explicit PlainParams(const TrainOptions& options) : dtype_(options.dtype) {
    const GptParams params(options.model);
    for (size_t i = 0; i < params.all().size(); ++i) {
      const ParamId id(static_cast<int32_t>(i));
      const auto count = static_cast<size_t>(params.param(id).elements());
      Arrays& one = arrays_.emplace_back();
      one.master.resize(count);
      FillInitialValues(options.model, params.param(id), id, options.seed, 0,
                        static_cast<int64_t>(count), one.master.data());
      one.values = one.exp_avg = one.exp_avg_sq = one.master;
      std::fill(one.exp_avg.begin(), one.exp_avg.end(), 0.0f);
      std::fill(one.exp_avg_sq.begin(), one.exp_avg_sq.end(), 0.0f);
      Round(one.values);
    }
  }

  std::vector<Arrays>& all() { return arrays_; }

  // To the type of parameters and gradients.
  void Round(std::span<float> values) const {
    std::vector<uint32_t> narrow(values.size());
    const auto count = static_cast<int64_t>(values.size());
    ConvertFromFloat(values.data(), count, dtype_, narrow.data());
    ConvertToFloat(narrow.data(), dtype_, count, values.data());
  }

  void BeginMicroBatch() {
    for (Arrays& one : arrays_) one.part.assign(one.values.size(), 0.0f);
  }
  void EndMicroBatch(bool first) {
    for (Arrays& one : arrays_) {
      if (first) {
        one.sum = one.part;
        continue;
      }
      Add(one.part, &one.sum);
    }
  }

  Status Hold(std::span<const ParamId> params,
              std::span<const float*> values) override {
    for (size_t i = 0; i < params.size(); ++i) {
      values[i] = arrays_[params[i].index()].values.data();
    }
    return OkStatus();
  }
  void Release() override {}
  // fp32 is added to where it lies, as layers do; other types are made in fp32
  // and rounded once.
  Result<float*> OpenGrad(ParamId param) override {
    Arrays& one = arrays_[param.index()];
    if (dtype_ == DType::kF32) return one.part.data();
    one.open.assign(one.values.size(), 0.0f);
    return one.open.data();
  }
  Status CloseGrad(ParamId param, GradUse) override {
    Arrays& one = arrays_[param.index()];
    if (dtype_ != DType::kF32) Add(one.open, &one.part);
    return OkStatus();
  }

 private:
  void Add(const std::vector<float>& from, std::vector<float>* to) const {
    for (size_t i = 0; i < to->size(); ++i) (*to)[i] += from[i];
    Round(*to);
  }

  DType dtype_;
  std::vector<Arrays> arrays_;
};

// g = gradient * factor
// p = p * (1 - lr * weight_decay)
// m = m * beta1 + g * (1 - beta1)
// v = v * beta2 + (g * g) * (1 - beta2)
// p = p - lr / (1 - beta1^t) * (m / (sqrt(v) / sqrt(1 - beta2^t) + eps))
//
// with products and sums in fp32, scalars in fp64 rounded to fp32.
void Update(const OptimizerOptions& options, double weight_decay, double lr,
            double t, float factor, Arrays* one) {
  const auto narrow = [](double x) { return static_cast<float>(x); };
  const float decay = narrow(1 - lr * weight_decay);
  const float beta1 = narrow(options.beta1);
  const float rest1 = narrow(1 - options.beta1);
  const float beta2 = narrow(options.beta2);
  const float rest2 = narrow(1 - options.beta2);
  const float step_size = narrow(lr / (1 - std::pow(options.beta1, t)));
  const float root = narrow(std::sqrt(1 - std::pow(options.beta2, t)));
  const float eps = narrow(options.eps);
  for (size_t i = 0; i < one->master.size(); ++i) {
    const float g = one->sum[i] * factor;
    float& m = one->exp_avg[i];
    float& v = one->exp_avg_sq[i];
    m = m * beta1 + g * rest1;
    v = v * beta2 + (g * g) * rest2;
    one->master[i] =
        one->master[i] * decay - step_size * (m / (std::sqrt(v) / root + eps));
  }
}

// The factor of averaging and clipping, with the norm of the averaged gradient.
float FactorOf(const TrainOptions& options, std::vector<Arrays>& arrays,
               double* norm) {
  const double average = 1.0 / options.accumulate;
  *norm = 0;
  if (options.engine.clip_norm == 0) return static_cast<float>(average);
  ExactSum squares;
  for (const Arrays& one : arrays) {
    AddSquares(one.sum.data(), DType::kF32,
               static_cast<int64_t>(one.sum.size()), &squares);
  }
  *norm = std::sqrt(squares.Total()) * average;
  const double clip = std::min(1.0, options.engine.clip_norm / (*norm + 1e-6));
  return static_cast<float>(clip * average);
}

// The sum of the XXH3 of every block of 64 fp32 values, seeded with the
// parameter and the number of the block.
uint64_t DigestOf(const std::vector<Arrays>& arrays) {
  constexpr size_t kBlock = 64;
  uint64_t digest = 0;
  for (size_t param = 0; param < arrays.size(); ++param) {
    const std::span<const float> values = arrays[param].master;
    for (size_t begin = 0; begin < values.size(); begin += kBlock) {
      const std::span<const float> block =
          values.subspan(begin, std::min(kBlock, values.size() - begin));
      digest += XXH3_64bits_withSeed(block.data(), block.size_bytes(),
                                     uint64_t{param} << 40 ^ begin / kBlock);
    }
  }
  return digest;
}

}  // namespace

Result<PlainOutcome> TrainPlainly(const TrainOptions& options,
                                  const TextData& data) {
  CASTOR_RETURN_IF_ERROR(LoadBlas());
  const int seq = options.model.context;
  std::vector<int> tokens(static_cast<size_t>(options.batch) *
                          static_cast<size_t>(seq));
  std::vector<int> targets(tokens.size());
  const GptParams names(options.model);
  PlainParams params(options);
  Gpt model(options.model, options.batch);
  PlainOutcome outcome;
  for (int64_t step = 1; step <= options.steps; ++step) {
    double mean = 0;
    for (int micro = 0; micro < options.accumulate; ++micro) {
      data.Sample({options.seed, step, 0, micro}, options.batch, seq, tokens,
                  targets);
      params.BeginMicroBatch();
      CASTOR_ASSIGN_OR_RETURN(const double loss,
                              model.Forward(params, tokens, targets));
      CASTOR_RETURN_IF_ERROR(model.Backward(params));
      params.EndMicroBatch(micro == 0);
      mean += loss / options.accumulate;
    }
    outcome.losses.push_back(mean);
    const float factor =
        FactorOf(options, params.all(), &outcome.norms.emplace_back());
    const double lr = LearningRateAt(ScheduleOf(options), step);
    for (size_t i = 0; i < params.all().size(); ++i) {
      const ParamId id(static_cast<int32_t>(i));
      const bool decays =
          options.engine.groups.empty() || names.param(id).is_matrix();
      const OptimizerOptions& optimizer = options.engine.optimizer;
      Arrays& one = params.all()[i];
      Update(optimizer, decays ? optimizer.weight_decay : 0, lr,
             static_cast<double>(step), factor, &one);
      one.values = one.master;
      params.Round(one.values);
    }
  }
  outcome.digest = DigestOf(params.all());
  return outcome;
}

}  // namespace castor::gpt
