// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_EXACT_SUM_H_
#define CASTOR_OFFLOAD_KERNELS_EXACT_SUM_H_

// The sum of squares that the global norm is made of, exact where it matters:
// squares are summed in fp64 over blocks of 64 elements counted from the
// parameter's start (element i of a block in lane i mod 8, lanes folded in a
// fixed tree), and block sums are added exactly, as wide fixed-point integers
// (Kulisch). Integers add in any order to the same total, so no chunk size,
// shard border, tier or rank count changes a bit. Thread-compatible.

#include <array>
#include <cstdint>
#include <span>

#include "chunk/base/dtype.h"

namespace castor {

class ExactSum {
 public:
  // 32-bit digits of the fixed-point total, least significant first, each kept
  // in 64 bits so that up to 2^31 sums add without a carry; then one word that
  // counts block sums that were infinite or not a number.
  static constexpr int kDigits = 68;
  static constexpr int kWords = kDigits + 1;

  // Adds a non-negative double exactly.
  void Add(double block_sum);
  void Merge(const ExactSum& other);

  // The words, for an all-reduce that adds them as unsigned integers. After one
  // over W ranks the sum of all of them is here. Writing through it is allowed.
  std::span<uint64_t> words() { return words_; }
  std::span<const uint64_t> words() const { return words_; }

  // Whether any block sum was infinite or not a number.
  bool overflowed() const { return words_[kDigits] != 0; }
  // The total rounded to nearest even; +infinity when overflowed().
  double Total() const;

 private:
  // Digits are renormalised before 2^31 additions could overflow one.
  void Normalize();

  std::array<uint64_t, kWords> words_{};
  int64_t additions_ = 0;
};

// Adds the squares of `count` elements of a gradient of `dtype` (kF32 or kBF16)
// to `sum`. The range must start at a multiple of 64 elements from the
// parameter's start; a last block may be shorter.
void AddSquares(const void* grad, DType dtype, int64_t count, ExactSum* sum);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_EXACT_SUM_H_
