// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/reference_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace castor::gpt {
namespace {

constexpr size_t kBlock = 64;
constexpr size_t kLanes = 8;
constexpr int kLeastExponent = -1074;

double SumOfSquares(std::span<const float> block) {
  std::array<double, kLanes> lanes = {};
  for (size_t i = 0; i < block.size(); ++i) {
    const double x = block[i];
    lanes[i % kLanes] += x * x;
  }
  for (size_t step = 1; step < kLanes; step *= 2) {
    for (size_t i = 0; i < kLanes; i += 2 * step) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

}  // namespace

void LongSum::AddSquares(std::span<const float> gradient) {
  for (size_t i = 0; i < gradient.size(); i += kBlock) {
    const double sum = SumOfSquares(
        gradient.subspan(i, std::min(kBlock, gradient.size() - i)));
    if (std::isfinite(sum)) {
      Add(sum);
    } else {
      finite_ = false;
    }
  }
}

void LongSum::Add(double value) {
  if (value == 0) return;
  // value = mantissa * 2^exponent with a mantissa of 53 bits at most.
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  exponent -= 53;
  uint64_t mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));
  if (exponent < kLeastExponent) {  // a denormal: its low bits are zeros
    mantissa >>= kLeastExponent - exponent;
    exponent = kLeastExponent;
  }
  const int place = exponent - kLeastExponent;
  const int shift = place % 64;
  uint64_t add[2] = {mantissa << shift,
                     shift == 0 ? 0 : mantissa >> (64 - shift)};
  uint64_t carry = 0;
  for (int i = 0; i < 2 || carry != 0; ++i) {
    uint64_t& word = words_[static_cast<size_t>(place / 64 + i)];
    const uint64_t part = i < 2 ? add[i] : 0;
    const uint64_t with_part = word + part;
    const uint64_t with_carry = with_part + carry;
    carry = (with_part < word ? 1 : 0) + (with_carry < with_part ? 1 : 0);
    word = with_carry;
  }
}

double LongSum::Total() const {
  if (!finite_) return std::numeric_limits<double>::infinity();
  int top = kWords * 64 - 1;
  while (top >= 0 && !Bit(top)) --top;
  if (top < 0) return 0;
  const int low = std::max(0, top - 52);  // of the bits a double keeps
  uint64_t mantissa = 0;
  for (int i = top; i >= low; --i) mantissa = mantissa << 1 | (Bit(i) ? 1 : 0);
  if (low > 0 && Bit(low - 1)) {
    bool above_half = (mantissa & 1) != 0;  // or a half that rounds to even
    for (int i = 0; i < low - 1 && !above_half; ++i) above_half = Bit(i);
    if (above_half) ++mantissa;
  }
  return std::ldexp(static_cast<double>(mantissa), low + kLeastExponent);
}

}  // namespace castor::gpt
