// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_OPTIONS_OPTION_WORDS_H_
#define CASTOR_COLLECTIVES_OPTIONS_OPTION_WORDS_H_

// Part of the engine's options (zero_config.h): values of flags that have a
// form of their own, and back. Each function that parses takes one value of a
// flag and adds to what the values before it said. InvalidArgument, naming the
// value and what is wrong with it. Pure functions but for ParseDrive, which
// asks the file system what is a directory; thread-safe.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "offload/nvme/nvme_option.h"
#include "placement/homes/home_limits.h"
#include "placement/placement_rules.h"

namespace castor {

// DIR[:SIZE], of --nvme. A path may contain colons: one that is a directory is
// taken whole, otherwise a size follows the last colon. Wrong are a size of
// nothing, and a directory that was given before. That a directory exists is
// checked when it is used.
Status ParseDrive(std::string_view text, std::vector<NvmeOption>* drives);
// All of them.
Result<std::vector<NvmeOption>> ParseNvmeFlag(
    const std::vector<std::string>& values);

// For the flags' help.
inline constexpr char kKeepCopiesFlagHelp[] =
    "without a device budget, keep gathered copies between uses, too";
inline constexpr char kNvmeFlagHelp[] =
    "DIR[:SIZE]: folder for what budgets do not hold, and how much may go "
    "there per rank; given once per drive, their work is shared";

using HomeLimits = std::optional<std::vector<HomeLimit>>;

// What may be the name of a state, of whichever optimizer, or kAllStates.
Status CheckStateWord(std::string_view text);

// STATE@TIER=AMOUNT, of --limit. Wrong are a limit that is given twice, and one
// in bytes for all states: it would be of each of them.
Status ParseLimit(std::string_view text, HomeLimits* limits);
// Adds one limit, with words of what is wrong.
Status AddLimit(HomeLimit limit, HomeLimits* limits);
std::vector<std::string> LimitWords(const HomeLimits& limits);

// TIER:GLOB[,state=S][,type=T][,least=SIZE][,most=SIZE], of --place.
Status ParseRule(std::string_view text, std::vector<PlacementRule>* rules);
// REQUIRES: no rule has a callback.
std::vector<std::string> RuleWords(const std::vector<PlacementRule>& rules);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_OPTIONS_OPTION_WORDS_H_
