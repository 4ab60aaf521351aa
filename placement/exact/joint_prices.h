// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_EXACT_JOINT_PRICES_H_
#define CASTOR_PLACEMENT_EXACT_JOINT_PRICES_H_

// Better prices for a joint problem, for joint_flow.cc: at given prices each
// chunk chooses for itself what is best for it, and where all of them together
// take more than there is the price rises, where they take less it falls (the
// subgradient, in Polyak's steps). Takes no flow and so little time. Pure,
// thread-safe. Part of the joint flow (joint_flow.h).

#include <cstdint>
#include <vector>

#include "placement/exact/joint_problem.h"

namespace castor::internal {

// Prices that bound a split more closely than `prices`, or these. `gain` is
// what is known to be possible there; `rounds`: how often prices are moved.
JointPrices BetterPrices(const JointProblem& problem,
                         const std::vector<std::vector<size_t>>& chains,
                         int64_t split, int64_t gain, const JointPrices& prices,
                         int rounds);

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_EXACT_JOINT_PRICES_H_
