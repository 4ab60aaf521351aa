// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_EXACT_WHOLE_COSTS_H_
#define CASTOR_PLACEMENT_EXACT_WHOLE_COSTS_H_

// Costs as whole numbers of one unit, a power of two, so that sums of them are
// exact and can be proved equal. For the .cc files of exact_policy.h. Pure,
// thread-safe. Part of the step planner (step_planner.h).

#include <cstdint>
#include <vector>

namespace castor::internal {

struct WholeCosts {
  std::vector<int64_t> whole;  // positive
  double unit = 1;
  // Whether whole * unit is each cost; otherwise it is off by at most a unit.
  bool exact = true;
};

// With no number of more than `bits` bits. Exact where the costs allow it.
// REQUIRES: costs are positive and finite, 1 <= bits <= 52.
WholeCosts ToWholeCosts(const std::vector<double>& costs, int bits);

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_EXACT_WHOLE_COSTS_H_
