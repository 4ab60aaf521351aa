// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/whole_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace castor::internal {
namespace {

// cost = odd * 2^exponent, exactly.
int LowestBit(double cost) {
  int exponent = 0;
  const double fraction = std::frexp(cost, &exponent);  // in [0.5, 1)
  constexpr int kBits = std::numeric_limits<double>::digits;
  const auto whole = static_cast<uint64_t>(std::ldexp(fraction, kBits));
  return exponent - kBits + std::countr_zero(whole);
}

}  // namespace

WholeCosts ToWholeCosts(const std::vector<double>& costs, int bits) {
  WholeCosts result;
  if (costs.empty()) return result;
  int lowest = std::numeric_limits<int>::max();
  int highest = std::numeric_limits<int>::min();  // all are below 2^highest
  for (double cost : costs) {
    lowest = std::min(lowest, LowestBit(cost));
    int exponent = 0;
    std::frexp(cost, &exponent);
    highest = std::max(highest, exponent);
  }
  result.exact = highest - lowest <= bits;
  // Rounding up may carry into one more bit.
  const int unit_exponent = result.exact ? lowest : highest - bits + 1;
  result.unit = std::ldexp(1.0, unit_exponent);
  for (double cost : costs) {
    const auto whole =
        static_cast<int64_t>(std::llround(std::ldexp(cost, -unit_exponent)));
    result.whole.push_back(std::max<int64_t>(whole, 1));
  }
  return result;
}

}  // namespace castor::internal
