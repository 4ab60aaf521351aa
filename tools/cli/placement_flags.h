// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_PLACEMENT_FLAGS_H_
#define CASTOR_TOOLS_CLI_PLACEMENT_FLAGS_H_

// The flags --limit and --place of the `static` policy, each given as often as
// one likes, the same in every program. Pure functions, thread-safe.

#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "placement/placement_rules.h"
#include "placement/static_policy.h"

namespace castor {

// For the flags' help.
inline constexpr char kLimitFlagHelp[] =
    "STATE@TIER=AMOUNT: most of a state's bytes on a tier, as a size or a "
    "percentage: exp_avg@host=12GiB, param@device=25%; STATE may be all";
inline constexpr char kPlaceFlagHelp[] =
    "TIER:GLOB[,state=S][,type=T][,least=SIZE][,most=SIZE]: parameters by "
    "name, and by their type and size, live on a tier; the first that matches "
    "holds";

// All values of --limit. InvalidArgument, naming the flag and the value, where
// one is none, where a limit is given twice, and where all states are given one
// in bytes: it would be of each of them.
Result<StaticLimits> ParseLimitFlag(const std::vector<std::string>& values);

// All values of --place, in order. InvalidArgument as above.
Result<std::vector<PlacementRule>> ParsePlaceFlag(
    const std::vector<std::string>& values);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_PLACEMENT_FLAGS_H_
