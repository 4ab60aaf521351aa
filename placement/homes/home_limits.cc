// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/homes/home_limits.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "chunk/text/did_you_mean.h"
#include "chunk/text/quote.h"

namespace castor {
namespace {

Status LimitedBefore(std::string_view state, Tier tier) {
  return InvalidArgument(
      fmt::format("{} on {} was given a limit before", state, TierName(tier)));
}

// The first and the last state, as numbers, that a limit is of.
Result<std::pair<int, int>> StatesOf(const HomeLimit& limit,
                                     const StateNames& names) {
  if (limit.state == kAllStates) return std::pair(0, names.states() - 1);
  const std::optional<StateKind> state = names.Find(limit.state);
  if (state)
    return std::pair(static_cast<int>(*state), static_cast<int>(*state));
  std::vector<std::string> known = names.all();
  known.emplace_back(kAllStates);
  return InvalidArgument(
      fmt::format("a limit on {} is for state {}, which is none that there is "
                  "with this optimizer{}",
                  TierName(limit.tier), Quoted(limit.state),
                  SuggestName(limit.state, known)));
}

}  // namespace

Status AddHomeLimit(HomeLimit limit, std::vector<HomeLimit>* limits) {
  for (const HomeLimit& other : *limits) {
    if (other.tier != limit.tier) continue;
    if (other.state == limit.state || other.state == kAllStates) {
      return LimitedBefore(limit.state, limit.tier);
    }
    if (limit.state == kAllStates) {
      return LimitedBefore(other.state, limit.tier);
    }
  }
  limits->push_back(std::move(limit));
  return OkStatus();
}

Result<StaticLimits> ResolveLimits(std::span<const HomeLimit> limits,
                                   const StateNames& names) {
  StaticLimits resolved;
  for (const HomeLimit& limit : limits) {
    CASTOR_ASSIGN_OR_RETURN(const auto states, StatesOf(limit, names));
    for (int k = states.first; k <= states.second; ++k) {
      std::optional<StateLimit>& place =
          resolved[static_cast<size_t>(k)].on(limit.tier);
      if (place) {
        return LimitedBefore(names.of(static_cast<StateKind>(k)), limit.tier);
      }
      place = limit.amount;
    }
  }
  return resolved;
}

}  // namespace castor
