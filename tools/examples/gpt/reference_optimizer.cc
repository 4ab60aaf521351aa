// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/reference_optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace castor::gpt {
namespace {

constexpr size_t kBlock = 64;
constexpr size_t kLanes = 8;
constexpr int kLeastExponent = -1074;

double SumOfSquares(std::span<const float> block) {
  std::array<double, kLanes> lanes = {};
  for (size_t i = 0; i < block.size(); ++i) {
    const double x = block[i];
    lanes[i % kLanes] += x * x;
  }
  for (size_t step = 1; step < kLanes; step *= 2) {
    for (size_t i = 0; i < kLanes; i += 2 * step) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

}  // namespace

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

void LongSum::AddSquares(std::span<const float> gradient) {
  for (size_t i = 0; i < gradient.size(); i += kBlock) {
    const double sum = SumOfSquares(
        gradient.subspan(i, std::min(kBlock, gradient.size() - i)));
    if (std::isfinite(sum)) {
      Add(sum);
    } else {
      finite_ = false;
    }
  }
}

void LongSum::Add(double value) {
  if (value == 0) return;
  // value = mantissa * 2^exponent with a mantissa of 53 bits at most.
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  exponent -= 53;
  uint64_t mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));
  if (exponent < kLeastExponent) {  // a denormal: its low bits are zeros
    mantissa >>= kLeastExponent - exponent;
    exponent = kLeastExponent;
  }
  const int place = exponent - kLeastExponent;
  const int shift = place % 64;
  uint64_t add[2] = {mantissa << shift,
                     shift == 0 ? 0 : mantissa >> (64 - shift)};
  uint64_t carry = 0;
  for (int i = 0; i < 2 || carry != 0; ++i) {
    uint64_t& word = words_[static_cast<size_t>(place / 64 + i)];
    const uint64_t part = i < 2 ? add[i] : 0;
    const uint64_t with_part = word + part;
    const uint64_t with_carry = with_part + carry;
    carry = (with_part < word ? 1 : 0) + (with_carry < with_part ? 1 : 0);
    word = with_carry;
  }
}

double LongSum::Total() const {
  if (!finite_) return std::numeric_limits<double>::infinity();
  int top = kWords * 64 - 1;
  while (top >= 0 && !Bit(top)) --top;
  if (top < 0) return 0;
  const int low = std::max(0, top - 52);  // of the bits a double keeps
  uint64_t mantissa = 0;
  for (int i = top; i >= low; --i) mantissa = mantissa << 1 | (Bit(i) ? 1 : 0);
  if (low > 0 && Bit(low - 1)) {
    bool above_half = (mantissa & 1) != 0;  // or a half that rounds to even
    for (int i = 0; i < low - 1 && !above_half; ++i) above_half = Bit(i);
    if (above_half) ++mantissa;
  }
  return std::ldexp(static_cast<double>(mantissa), low + kLeastExponent);
}

}  // namespace castor::gpt
