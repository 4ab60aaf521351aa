// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_EXACT_SUM_H_
#define CASTOR_OFFLOAD_KERNELS_EXACT_SUM_H_

// The sum of squares that the global norm is made of, exact where it matters.
// Squares are summed in fp64 over blocks of 64 elements counted from the
// parameter's start: element i of a block is added to lane i mod 8, in
// ascending order, and the eight lanes are folded in the fixed tree
//
//   ((l0 + l1) + (l2 + l3)) + ((l4 + l5) + (l6 + l7))
//
// (the square of an fp32 value is exact in fp64). Block sums are added exactly,
// as wide fixed-point integers (Kulisch). Integers add in any order to the same
// total, so no chunk size, shard border, tier or rank count changes a bit.
// Thread-compatible.

#include <array>
#include <cstdint>
#include <span>

#include "chunk/base/dtype.h"

namespace castor {

class ExactSum {
 public:
  // 32-bit digits of the fixed-point total, least significant first, in units
  // of the least denormal, each kept in 64 bits so that up to 2^31 sums add
  // without a carry; then one word that counts block sums that were infinite or
  // not a number.
  static constexpr int kDigits = 68;
  static constexpr int kWords = kDigits + 1;

  // Adds a non-negative double, infinity or NaN exactly.
  void Add(double block_sum);
  void Merge(const ExactSum& other);

  // The words with carries done: the same for the same total, and every digit
  // below 2^32, for an all-reduce that adds words as unsigned integers. After
  // one over W < 2^31 ranks the sum of all of them is here. Writing through it
  // is allowed until the next call that is not const.
  std::span<uint64_t> words();

  // Whether any block sum was infinite or not a number.
  bool overflowed() const { return words_[kDigits] != 0; }
  // The total rounded to nearest even; +infinity when overflowed() and where no
  // finite double is nearest.
  double Total() const;

 private:
  static constexpr int64_t kMaxAdditions = int64_t{1} << 31;

  // Carries; done before one addition too many could overflow a digit.
  void Normalize();

  // Each digit is below (additions_ + 1) * 2^32.
  std::array<uint64_t, kWords> words_{};
  int64_t additions_ = 0;
};

// Adds the squares of `count` elements of a gradient of `dtype` (kF32, kBF16 or
// kF16) to `sum`; any split at multiples of 64 gives the same bits. The range
// must start at a multiple of 64 elements from the parameter's start; a last
// block may be shorter. The range needs element alignment only.
void AddSquares(const void* grad, DType dtype, int64_t count, ExactSum* sum);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_EXACT_SUM_H_
