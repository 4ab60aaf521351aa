// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_REFERENCE_NORM_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_REFERENCE_NORM_H_

// The sum of squares of all gradients as Castor defines it, written again from
// the definition and in another way, so that an agreement means something:
// squares in fp64 over blocks of 64 elements from a parameter's start (element
// i of a block in lane i mod 8, neighbouring lanes folded, then pairs, then
// quadruples), block sums added exactly. Here the exact sum is one long binary
// number with carries. Thread-compatible.

#include <array>
#include <cstdint>
#include <span>

namespace castor::gpt {

class LongSum {
 public:
  // Adds the squares of one parameter's gradient.
  void AddSquares(std::span<const float> gradient);

  // Rounded to nearest even; infinity where a gradient was not finite.
  double Total() const;

 private:
  // REQUIRES: value is finite and not negative.
  void Add(double value);
  bool Bit(int i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }

  // In units of the least double, 2^-1074. Doubles end below 2^1024, and 2^62
  // of them fit.
  static constexpr int kWords = 34;
  std::array<uint64_t, kWords> words_{};
  bool finite_ = true;
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_REFERENCE_NORM_H_
