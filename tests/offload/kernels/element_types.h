// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_OFFLOAD_KERNELS_ELEMENT_TYPES_H_
#define CASTOR_TESTS_OFFLOAD_KERNELS_ELEMENT_TYPES_H_

// The types of elements that kernels take, for tests that are templates over
// them. Pure functions.

#include <random>
#include <type_traits>

#include "chunk/base/dtype.h"
#include "offload/kernels/bfloat16.h"
#include "offload/kernels/float16.h"
#include "tests/offload/kernels/kernel_data.h"

namespace castor {

template <typename T>
constexpr DType kDTypeOf = std::is_same_v<T, float>      ? DType::kF32
                           : std::is_same_v<T, BFloat16> ? DType::kBF16
                                                         : DType::kF16;

inline float Widen(float value) { return value; }
inline float Widen(BFloat16 value) { return BFloat16ToFloat(value.bits); }
inline float Widen(Float16 value) { return Float16ToFloat(value.bits); }

inline void Round(float value, float* to) { *to = WithCanonicalNaN(value); }
inline void Round(float value, BFloat16* to) {
  to->bits = FloatToBFloat16(value);
}
inline void Round(float value, Float16* to) {
  to->bits = FloatToFloat16(value);
}

inline void Draw(std::mt19937_64& random, float* to) {
  *to = HostileFloat(random);
}
inline void Draw(std::mt19937_64& random, BFloat16* to) {
  to->bits = HostileBFloat16(random);
}
inline void Draw(std::mt19937_64& random, Float16* to) {
  to->bits = HostileFloat16(random);
}

template <typename T>
void Draw(std::mt19937_64& random, OffsetBuffer<T>& to) {
  for (int64_t i = 0; i < to.size(); ++i) Draw(random, to.data() + i);
}

}  // namespace castor

#endif  // CASTOR_TESTS_OFFLOAD_KERNELS_ELEMENT_TYPES_H_
