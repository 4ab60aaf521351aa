// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/reference_optimizer.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "tools/examples/gpt/reference_norm.h"

namespace castor::gpt {

ReferenceOptimizer::Outcome ReferenceOptimizer::Step(PlainParams<float>& params,
                                                     double lr,
                                                     int micro_batches) {
  Outcome outcome;
  const double average = 1.0 / micro_batches;
  double clip = 1;
  if (options_.clip_norm > 0) {
    LongSum squares;
    for (int32_t i = 0; i < params.size(); ++i) {
      squares.AddSquares(params.gradient(ParamId(i)));
    }
    outcome.grad_norm = std::sqrt(squares.Total()) * average;
    outcome.applied = std::isfinite(outcome.grad_norm);
    if (!outcome.applied) return outcome;
    clip = std::min(1.0, options_.clip_norm / (outcome.grad_norm + 1e-6));
  }
  const float factor = static_cast<float>(clip * average);
  ++steps_;
  moments_.resize(static_cast<size_t>(params.size()));
  for (int32_t i = 0; i < params.size(); ++i) {
    Update(params, ParamId(i), lr, factor);
  }
  return outcome;
}

void ReferenceOptimizer::Update(PlainParams<float>& params, ParamId id,
                                double lr, float factor) {
  const std::span<const float> gradient = params.gradient(id);
  const std::span<float> weight = params.master(id);
  Moments& moments = moments_[id.index()];
  moments.first.resize(weight.size());
  moments.second.resize(weight.size());

  const double t = static_cast<double>(steps_);
  const auto narrow = [](double x) { return static_cast<float>(x); };
  const bool decays =
      options_.no_decay.empty() || !options_.no_decay[id.index()];
  const float decay = narrow(1 - lr * (decays ? options_.weight_decay : 0));
  const float beta1 = narrow(options_.beta1);
  const float rest1 = narrow(1 - options_.beta1);
  const float beta2 = narrow(options_.beta2);
  const float rest2 = narrow(1 - options_.beta2);
  const float step_size = narrow(lr / (1 - std::pow(options_.beta1, t)));
  const float root = narrow(std::sqrt(1 - std::pow(options_.beta2, t)));
  const float eps = narrow(options_.eps);
  for (size_t i = 0; i < weight.size(); ++i) {
    const float g = gradient[i] * factor;
    const float m = moments.first[i] * beta1 + g * rest1;
    const float v = moments.second[i] * beta2 + (g * g) * rest2;
    const float p = weight[i] * decay;
    weight[i] = p - step_size * (m / (std::sqrt(v) / root + eps));
    moments.first[i] = m;
    moments.second[i] = v;
  }
  params.RoundFromMaster(id);
}

}  // namespace castor::gpt
