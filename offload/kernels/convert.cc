// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/convert.h"

#include <algorithm>

#include "chunk/base/check.h"

namespace castor {

void ConvertToFloat(const void* from, DType dtype, int64_t count, float* to) {
  if (dtype == DType::kF32) {
    std::copy_n(static_cast<const float*>(from), count, to);
    return;
  }
  CASTOR_CHECK(dtype == DType::kBF16);
  const auto* low = static_cast<const uint16_t*>(from);
  for (int64_t i = 0; i < count; ++i) to[i] = BFloat16ToFloat(low[i]);
}

void ConvertFromFloat(const float* from, int64_t count, DType dtype, void* to) {
  if (dtype == DType::kF32) {
    auto* full = static_cast<float*>(to);
    for (int64_t i = 0; i < count; ++i) full[i] = WithCanonicalNaN(from[i]);
    return;
  }
  CASTOR_CHECK(dtype == DType::kBF16);
  auto* low = static_cast<uint16_t*>(to);
  for (int64_t i = 0; i < count; ++i) low[i] = FloatToBFloat16(from[i]);
}

}  // namespace castor
