// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_OFFLOAD_KERNELS_KERNEL_DATA_H_
#define CASTOR_TESTS_OFFLOAD_KERNELS_KERNEL_DATA_H_

// Numbers and buffers that vector code gets wrong first. Values.

#include <bit>
#include <cfenv>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <random>
#include <type_traits>
#include <vector>

#include "chunk/base/dtype.h"
#include "offload/kernels/numbers/bfloat16.h"
#include "offload/kernels/numbers/float16.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace castor {

// A generator whose seed is printed, new in every run.
inline std::mt19937_64 SeededGenerator() {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  return std::mt19937_64(seed);
}

// fp32 bit patterns: one in four from the list of special values and of ties
// between bf16 and between fp16 neighbours, one in four any bits at all, the
// rest of ordinary size.
inline float HostileFloat(std::mt19937_64& random) {
  static constexpr uint32_t kSpecial[] = {
      0x00000000, 0x80000000,                          // zeros
      0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF,  // denormals
      0x00800000, 0x80800000,                          // least normal
      0x7F7FFFFF, 0xFF7FFFFF,                          // greatest
      0x7F800000, 0xFF800000,                          // infinities
      0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF,  // quiet NaN
      0x7F800001, 0xFF800001, 0x7FBFFFFF, 0x7FA00000,  // signalling NaN
      0x3F800000, 0xBF800000,                          // one
      0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001,  // bf16 ties and
      0xBF808000, 0xBF818000, 0x7F7F8000, 0x7F7F7FFF,  // their neighbours
      0x00008000, 0x00018000, 0x80008000, 0x007F8000,  // among denormals
      0x477FE000, 0x477FEFFF, 0x477FF000, 0xC7800000,  // fp16: the greatest,
      0x38800000, 0x387FE000, 0x387FF000, 0xB87FEFFF,  // the least normal,
      0x33800000, 0x33000000, 0x33000001, 0xB2FFFFFF,  // the least, and ties
      0x33C00000, 0x34200000, 0x3F801000, 0x3F803000,  // on the way
  };
  const uint64_t draw = random();
  const uint32_t bits = static_cast<uint32_t>(draw);
  switch (draw >> 62) {
    case 0:
      return std::bit_cast<float>(kSpecial[bits % std::size(kSpecial)]);
    case 1:
      return std::bit_cast<float>(bits);
    default: {  // 2^-32 to 2^32
      const uint32_t exponent = 95 + (draw >> 32) % 64;
      return std::bit_cast<float>((bits & 0x807FFFFF) | exponent << 23);
    }
  }
}

// The upper half of such a pattern.
inline uint16_t HostileBFloat16(std::mt19937_64& random) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(HostileFloat(random)) >>
                               16);
}

// fp16 bit patterns: one in four special, the rest any bits at all.
inline uint16_t HostileFloat16(std::mt19937_64& random) {
  static constexpr uint16_t kSpecial[] = {
      0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF,  // zeros, denormals
      0x0400, 0x8400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00,  // least to infinite
      0x7C01, 0xFC01, 0x7DFF, 0x7E00, 0xFE00, 0xFFFF,  // NaN of either kind
  };
  const uint64_t draw = random();
  if (draw >> 62 == 0) return kSpecial[draw % std::size(kSpecial)];
  return static_cast<uint16_t>(draw);
}

inline void Fill(std::mt19937_64& random, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = HostileFloat(random);
}

// `count` elements that start `offset` elements past an aligned address and end
// where their allocation ends, so that AddressSanitizer sees any element too
// many.
template <typename T>
class OffsetBuffer {
 public:
  OffsetBuffer(int64_t count, int64_t offset)
      : count_(count),
        offset_(offset),
        memory_(new (kVector) T[static_cast<size_t>(count + offset)]()) {}

  T* data() { return memory_.get() + offset_; }
  const T* data() const { return memory_.get() + offset_; }
  int64_t size() const { return count_; }

  void CopyFrom(const OffsetBuffer& other) {
    if (count_ > 0) std::memcpy(data(), other.data(), count_ * sizeof(T));
  }

  // The bits, for comparisons that tell -0 from 0 and one NaN from another.
  std::vector<std::byte> Bits() const {
    std::vector<std::byte> bits(count_ * sizeof(T));
    if (count_ > 0) std::memcpy(bits.data(), data(), bits.size());
    return bits;
  }

 private:
  // Of the largest vectors, so that offset 0 is aligned for all.
  static constexpr std::align_val_t kVector{64};
  struct Free {
    void operator()(T* many) const { operator delete[](many, kVector); }
  };

  int64_t count_;
  int64_t offset_;
  std::unique_ptr<T[], Free> memory_;
};

// The worst mode a trainer may call from: denormals flushed to zero, operands
// and results, and rounding upward. Lasts as long as the object. Owner thread
// only.
class FlushingMode {
 public:
#if defined(__x86_64__)
  static constexpr bool kSupported = true;
#else
  static constexpr bool kSupported = false;
#endif

  FlushingMode() {
    std::fegetenv(&saved_);
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
  }
  ~FlushingMode() { std::fesetenv(&saved_); }

  FlushingMode(const FlushingMode&) = delete;
  FlushingMode& operator=(const FlushingMode&) = delete;

 private:
  std::fenv_t saved_;
};

// The types of elements that kernels take, for tests that are templates over
// them.

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

#endif  // CASTOR_TESTS_OFFLOAD_KERNELS_KERNEL_DATA_H_
