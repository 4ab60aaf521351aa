// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/initial_values.h"

#include <algorithm>
#include <cmath>

namespace castor::gpt {
namespace {

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
