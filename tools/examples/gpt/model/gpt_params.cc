// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/model/gpt_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace castor::gpt {
namespace {

// Generous, and small enough that no product of two of them overflows.
constexpr int kMostOfAnything = 1 << 20;

// The finaliser of SplitMix64: every input bit reaches every output bit.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;

// The sum of four uniform draws of 16 bits each is close to normal, and exact
// in integers: no libm, so the same bits on every machine. In units of the
// draws its mean is 2 * 65535 and its variance (65536^2 - 1) / 3.
float Normal(uint64_t bits, float scale) {
  const int64_t sum = static_cast<int64_t>(bits & 0xFFFF) +
                      static_cast<int64_t>((bits >> 16) & 0xFFFF) +
                      static_cast<int64_t>((bits >> 32) & 0xFFFF) +
                      static_cast<int64_t>(bits >> 48);
  return static_cast<float>(sum - 2 * 65535) * scale;
}

}  // namespace

Status Validate(const GptConfig& config) {
  const struct {
    const char* name;
    int value;
  } fields[] = {{"vocab", config.vocab},
                {"context", config.context},
                {"layers", config.layers},
                {"heads", config.heads},
                {"embd", config.embd}};
  for (const auto& field : fields) {
    if (field.value < 1 || field.value > kMostOfAnything) {
      return InvalidArgument(fmt::format("{} is {}: it must be 1 to {}",
                                         field.name, field.value,
                                         kMostOfAnything));
    }
  }
  if (config.embd % config.heads != 0) {
    return InvalidArgument(fmt::format(
        "embd {} is not a multiple of heads {}: every head gets an equal part "
        "of the embedding; {} would do",
        config.embd, config.heads,
        (config.embd / config.heads + 1) * config.heads));
  }
  return OkStatus();
}

int64_t GptParam::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1},
                         std::multiplies<>());
}

GptParams::GptParams(const GptConfig& config) : layers_(config.layers) {
  using enum InitialValue;
  const int64_t c = config.embd;
  params_ = {{"wte.weight", {config.vocab, c}, kNormal},
             {"wpe.weight", {config.context, c}, kNormal}};
  for (int layer = 0; layer < config.layers; ++layer) {
    const auto add = [&](const char* name, std::vector<int64_t> shape,
                         InitialValue initial) {
      params_.push_back(
          {fmt::format("h.{}.{}", layer, name), std::move(shape), initial});
    };
    add("ln_1.weight", {c}, kOne);
    add("ln_1.bias", {c}, kZero);
    add("attn.c_attn.weight", {c, 3 * c}, kNormal);
    add("attn.c_attn.bias", {3 * c}, kZero);
    add("attn.c_proj.weight", {c, c}, kResidual);
    add("attn.c_proj.bias", {c}, kZero);
    add("ln_2.weight", {c}, kOne);
    add("ln_2.bias", {c}, kZero);
    add("mlp.c_fc.weight", {c, 4 * c}, kNormal);
    add("mlp.c_fc.bias", {4 * c}, kZero);
    add("mlp.c_proj.weight", {4 * c, c}, kResidual);
    add("mlp.c_proj.bias", {c}, kZero);
  }
  params_.push_back({"ln_f.weight", {c}, kOne});
  params_.push_back({"ln_f.bias", {c}, kZero});
}

int64_t GptParams::elements() const {
  int64_t sum = 0;
  for (const GptParam& param : params_) sum += param.elements();
  return sum;
}

std::vector<ParamSpec> SpecsOf(const GptConfig& config, DType dtype) {
  const GptParams params(config);
  std::vector<ParamSpec> specs;
  for (const GptParam& param : params.all()) {
    specs.push_back({.name = param.name, .shape = param.shape, .dtype = dtype});
  }
  return specs;
}

uint64_t RandomBits(uint64_t seed, uint64_t stream, uint64_t index) {
  const uint64_t key = Mix(Mix(seed + kGoldenRatio) ^ stream) + kGoldenRatio;
  return Mix(key + index * kGoldenRatio);
}

void FillInitialValues(const GptConfig& config, const GptParam& param,
                       ParamId id, uint64_t seed, int64_t begin, int64_t end,
                       float* out) {
  if (param.initial == InitialValue::kZero ||
      param.initial == InitialValue::kOne) {
    std::fill_n(out, end - begin,
                param.initial == InitialValue::kOne ? 1.0f : 0.0f);
    return;
  }
  double deviation = 0.02;
  if (param.initial == InitialValue::kResidual) {
    deviation /= std::sqrt(2.0 * config.layers);
  }
  const float scale = static_cast<float>(deviation * std::sqrt(3.0) / 65536.0);
  const uint64_t stream = static_cast<uint64_t>(id.value());
  for (int64_t i = begin; i < end; ++i) {
    out[i - begin] =
        Normal(RandomBits(seed, stream, static_cast<uint64_t>(i)), scale);
  }
}

}  // namespace castor::gpt
