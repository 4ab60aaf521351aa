// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/reduce.h"

#include <array>

#include "chunk/base/check.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/float_mode.h"

namespace castor {
namespace {

void SumFloat(std::span<const void* const> sources, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    float sum = static_cast<const float*>(sources[0])[i];
    for (const void* source : sources.subspan(1)) {
      sum += static_cast<const float*>(source)[i];
    }
    to[i] = WithCanonicalNaN(sum);
  }
}

void SumBFloat16(std::span<const void* const> sources, int64_t count,
                 uint16_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    float sum = BFloat16ToFloat(static_cast<const uint16_t*>(sources[0])[i]);
    for (const void* source : sources.subspan(1)) {
      sum += BFloat16ToFloat(static_cast<const uint16_t*>(source)[i]);
    }
    to[i] = FloatToBFloat16(sum);
  }
}

}  // namespace

void SumInOrder(std::span<const void* const> sources, DType dtype,
                int64_t count, void* to) {
  CASTOR_CHECK(!sources.empty());
  const DefaultFloatMode mode;
  if (dtype == DType::kF32) {
    SumFloat(sources, count, static_cast<float*>(to));
  } else {
    CASTOR_CHECK(dtype == DType::kBF16);
    SumBFloat16(sources, count, static_cast<uint16_t*>(to));
  }
}

void AddInto(void* total, const void* part, DType dtype, int64_t count) {
  const std::array<const void*, 2> sources = {total, part};
  SumInOrder(sources, dtype, count, total);
}

}  // namespace castor
