// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_HOMES_HOME_LIMITS_H_
#define CASTOR_PLACEMENT_HOMES_HOME_LIMITS_H_

// Limits of homes as a user writes them, by the names of states, before it is
// known which states the optimizer keeps; and what they mean once it is. Values
// and pure functions, thread-safe.

#include <span>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "placement/homes/static_policy.h"
#include "placement/state_kind.h"

namespace castor {

// Of one state, or of each of them: kAllStates.
struct HomeLimit {
  std::string state;
  Tier tier = Tier::kDevice;
  StateLimit amount;

  friend bool operator==(const HomeLimit&, const HomeLimit&) = default;
};

// Adds one. InvalidArgument where its state has a limit on that tier already.
Status AddHomeLimit(HomeLimit limit, std::vector<HomeLimit>* limits);

// What they are of states of these names. InvalidArgument for a state that is
// none of them, with the nearest, and for two limits of one state on one tier.
Result<StaticLimits> ResolveLimits(std::span<const HomeLimit> limits,
                                   const StateNames& names);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_HOMES_HOME_LIMITS_H_
