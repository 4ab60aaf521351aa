// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_RULES_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_RULES_H_

// What the rules of other systems pick for a model, what they claim of it and
// what is true, next to Castor's own answer. Pure functions, thread-safe.

#include <span>
#include <string>
#include <vector>

#include "chunk/base/json_value.h"
#include "chunk/base/status.h"
#include "tools/commands/search/search_report.h"
#include "tools/rules/rule_result.h"

namespace castor {

// What each of `rules` makes of the model. None for a model without elements.
Result<std::vector<RuleReport>> ApplyRules(
    const SearchReport& report, std::span<const CompatibilityRule> rules);

// A paragraph for each rule.
std::string RulesText(const SearchReport& report);

// Without what the sizes cost here, which the caller adds.
JsonValue RuleJson(const RuleResult& rule);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_RULES_H_
