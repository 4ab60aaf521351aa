// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/exact_sum.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "chunk/base/check.h"
#include "offload/kernels/numbers/exact_digits.h"
#include "offload/kernels/numbers/float_mode.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/kernels/exact_sum.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "offload/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace castor {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void SquareBlocks(const T* from, int64_t blocks, double* sums) {
  // As many of the eight lanes at once as a vector holds.
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> narrow;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t block = 0; block < blocks; ++block) {
    const T* const elements = from + block * 64;
    HWY_ALIGN double lane[8];
    for (int64_t first = 0; first < 8; first += step) {
      auto sum = hn::Zero(d);
      for (int64_t row = 0; row < 64; row += 8) {
        const auto x =
            hn::PromoteTo(d, LoadWidened(narrow, elements + row + first));
        sum = hn::Add(sum, hn::Mul(x, x));
      }
      hn::Store(sum, d, lane + first);
    }
    sums[block] = ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
                  ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  }
}

void SquareFloatBlocks(const float* from, int64_t blocks, double* sums) {
  SquareBlocks(from, blocks, sums);
}

void SquareBFloat16Blocks(const BFloat16* from, int64_t blocks, double* sums) {
  SquareBlocks(from, blocks, sums);
}

void SquareFloat16Blocks(const Float16* from, int64_t blocks, double* sums) {
  SquareBlocks(from, blocks, sums);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace castor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace castor {
namespace {

HWY_EXPORT(SquareFloatBlocks);
HWY_EXPORT(SquareBFloat16Blocks);
HWY_EXPORT(SquareFloat16Blocks);

constexpr int kDigitBits = kExactDigitBits;
constexpr uint64_t kDigitMask = 0xFFFFFFFF;
constexpr int kMantissaBits = kDoubleMantissaBits;
constexpr int kInfiniteExponent = kDoubleInfiniteExponent;

constexpr int64_t kBlock = 64;
// Block sums on their way from a vector kernel to the exact sum.
constexpr int64_t kBatch = 128;

void SumsOfBlocks(const float* from, int64_t blocks, double* sums) {
  HWY_DYNAMIC_DISPATCH(SquareFloatBlocks)(from, blocks, sums);
}
void SumsOfBlocks(const BFloat16* from, int64_t blocks, double* sums) {
  HWY_DYNAMIC_DISPATCH(SquareBFloat16Blocks)(from, blocks, sums);
}
void SumsOfBlocks(const Float16* from, int64_t blocks, double* sums) {
  HWY_DYNAMIC_DISPATCH(SquareFloat16Blocks)(from, blocks, sums);
}

template <typename T>
void AddSquaresOf(const T* grad, int64_t count, ExactSum* sum) {
  double sums[kBatch];
  while (count >= kBlock) {
    const int64_t blocks = std::min(count / kBlock, kBatch);
    SumsOfBlocks(grad, blocks, sums);
    for (int64_t i = 0; i < blocks; ++i) sum->Add(sums[i]);
    grad += blocks * kBlock;
    count -= blocks * kBlock;
  }
  if (count == 0) return;
  // Zeros in place of what a short block lacks change no sum.
  T block[kBlock] = {};
  std::copy_n(grad, count, block);
  SumsOfBlocks(block, 1, sums);
  sum->Add(sums[0]);
}

// Carries upward until every digit but the last is below 2^32.
void Carry(std::span<uint64_t, ExactSum::kDigits> digits) {
  uint64_t carry = 0;
  for (uint64_t& digit : digits.first<ExactSum::kDigits - 1>()) {
    digit += carry;
    carry = digit >> kDigitBits;
    digit &= kDigitMask;
  }
  digits.back() += carry;
}

}  // namespace

void ExactSum::Add(double block_sum) {
  const ExactAddend addend =
      SplitIntoDigits(std::bit_cast<uint64_t>(block_sum));
  if (!addend.finite) [[unlikely]] {
    ++words_[kDigits];
    return;
  }
  CASTOR_CHECK(block_sum >= 0);
  if (additions_ >= kMaxAdditions) Normalize();
  ++additions_;
  words_[addend.digit] += addend.low;
  words_[addend.digit + 1] += addend.middle;
  words_[addend.digit + 2] += addend.high;
}

void ExactSum::Merge(const ExactSum& other) {
  if (additions_ + other.additions_ >= kMaxAdditions) Normalize();
  // The other's digits may hold as many additions as a digit bears, ours are
  // then normalised: together one more.
  additions_ += other.additions_ + 1;
  for (int i = 0; i < kWords; ++i) words_[i] += other.words_[i];
}

std::span<uint64_t> ExactSum::words() {
  Normalize();
  // What the caller writes is taken to be as large as a digit bears.
  additions_ = kMaxAdditions;
  return words_;
}

void ExactSum::Normalize() {
  Carry(std::span(words_).first<kDigits>());
  additions_ = 0;
}

double ExactSum::Total() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (overflowed()) return kInfinity;
  std::array<uint64_t, kDigits> digits;
  std::copy_n(words_.begin(), kDigits, digits.begin());
  Carry(digits);

  int top = kDigits - 1;
  while (top > 0 && digits[top] == 0) --top;
  // A denormal's bits, and those of the first normal numbers, are its count of
  // least denormals.
  const int high_bit = top * kDigitBits + std::bit_width(digits[top]) - 1;
  if (high_bit <= kMantissaBits) {
    return std::bit_cast<double>(digits[0] | digits[1] << kDigitBits);
  }

  // The top 53 bits, of which the lowest stands at `place`, and one more.
  const int place = high_bit - kMantissaBits;
  if (place >= kInfiniteExponent - 1) return kInfinity;
  const int digit = (place - 1) / kDigitBits;
  const int shift = (place - 1) % kDigitBits;
  const uint64_t below = digits[digit] & ((uint64_t{1} << shift) - 1);
  const uint64_t window =
      (digits[digit] | digits[digit + 1] << kDigitBits) >> shift |
      digits[digit + 2] << (kDigitBits - 1) << (kDigitBits + 1 - shift);
  const uint64_t mantissa = window >> 1;
  const bool half = (window & 1) != 0;
  const bool more =
      below != 0 || std::any_of(digits.begin(), digits.begin() + digit,
                                [](uint64_t d) { return d != 0; });
  const bool round_up = half && (more || (mantissa & 1) != 0);
  // The mantissa's leading one counts as one in the exponent, and a carry out
  // of it as one more, up to infinity.
  return std::bit_cast<double>((static_cast<uint64_t>(place) << kMantissaBits) +
                               mantissa + (round_up ? 1 : 0));
}

void AddSquares(const void* grad, DType dtype, int64_t count, ExactSum* sum) {
  const DefaultFloatMode mode;
  if (dtype == DType::kF32) {
    AddSquaresOf(static_cast<const float*>(grad), count, sum);
  } else if (dtype == DType::kF16) {
    AddSquaresOf(static_cast<const Float16*>(grad), count, sum);
  } else {
    CASTOR_CHECK(dtype == DType::kBF16);
    AddSquaresOf(static_cast<const BFloat16*>(grad), count, sum);
  }
}

}  // namespace castor

#endif  // HWY_ONCE
