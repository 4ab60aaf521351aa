// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/ckpt/tensor_distance.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "offload/kernels/convert.h"

namespace castor {
namespace {

// The place of a number among all of its type, from the least up.
int64_t Rank(uint32_t bits, int width) {
  const uint32_t sign = uint32_t{1} << (width - 1);
  const int64_t magnitude = bits & (sign - 1);
  return (bits & sign) != 0 ? -magnitude - 1 : magnitude;
}

uint32_t BitsAt(const std::byte* data, int width) {
  uint32_t bits = 0;
  std::memcpy(&bits, data, static_cast<size_t>(width / 8));  // little-endian
  return bits;
}

}  // namespace

void AddDistance(const void* a, const void* b, DType dtype, int64_t count,
                 TensorDistance* distance) {
  const int width = DTypeBits(dtype);
  const int64_t size = width / 8;
  const bool real =
      dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
  const std::byte* at_a = static_cast<const std::byte*>(a);
  const std::byte* at_b = static_cast<const std::byte*>(b);
  distance->elements += count;
  if (std::memcmp(a, b, static_cast<size_t>(count * size)) == 0) return;
  for (int64_t i = 0; i < count; ++i, at_a += size, at_b += size) {
    if (std::memcmp(at_a, at_b, static_cast<size_t>(size)) == 0) continue;
    ++distance->differing;
    if (!real) continue;
    float x = 0;
    float y = 0;
    ConvertToFloat(at_a, dtype, 1, &x);
    ConvertToFloat(at_b, dtype, 1, &y);
    if (std::isnan(x) || std::isnan(y)) {
      ++distance->nans;
      continue;
    }
    const int64_t steps =
        Rank(BitsAt(at_a, width), width) - Rank(BitsAt(at_b, width), width);
    distance->max_ulp =
        std::max(distance->max_ulp, static_cast<uint64_t>(std::abs(steps)));
    distance->max_difference =
        std::max(distance->max_difference,
                 std::abs(static_cast<double>(x) - static_cast<double>(y)));
  }
}

}  // namespace castor
