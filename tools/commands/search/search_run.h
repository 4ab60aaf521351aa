// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_RUN_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_RUN_H_

// From what `castor search` was asked for to its report: reads the model and
// the machine, searches, and writes the layout file. Owner thread only.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "tools/cli/console.h"
#include "tools/commands/search/search_report.h"
#include "tools/commands/search/search_request.h"
#include "tools/rules/rule_result.h"

namespace castor {

// Progress and notes go to `console.err`, nothing to `console.out`. Where a
// layout file is asked for, it is there when this succeeds, and nothing of it
// when it does not.
Result<SearchReport> RunSearch(const SearchRequest& request,
                               const Console& console);

// --- Its parts: pure functions, thread-safe ---------------------------------

// What each of `rules` makes of the model. None for a model without elements.
Result<std::vector<RuleReport>> ApplyRules(
    const SearchReport& report, std::span<const CompatibilityRule> rules);

// What `pick` says, and its layout. With kChunk every group has one size,
// `chunk` rounded up to a multiple of Q of its type; where it differs, a
// sentence is added to `notes`. InvalidArgument where that cannot be packed.
// REQUIRES: `chunk` is given with kChunk and only then; `report.result` was
// found in `report.model`.
Result<SearchChoice> MakeChoice(const SearchReport& report, ChoicePick pick,
                                std::optional<Bytes> chunk,
                                std::vector<std::string>* notes);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_RUN_H_
