// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_RULES_COMPATIBILITY_RULE_H_
#define CASTOR_CHUNK_RULES_COMPATIBILITY_RULE_H_

// The chunk size that another system's rule would pick for a list of
// parameters, what that system would say of it, what it would truly waste
// there, and what the same size costs in Castor. Pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/chunk_packer.h"
#include "chunk/param_spec.h"
#include "chunk/rules/elixir_rule.h"
#include "chunk/rules/gemini_rule.h"
#include "chunk/rules/patrickstar_rule.h"
#include "chunk/rules/rule_result.h"
#include "chunk/search_result.h"

namespace castor {

inline constexpr CompatibilityRule kCompatibilityRules[] = {
    CompatibilityRule::kGemini, CompatibilityRule::kPatrickStar,
    CompatibilityRule::kElixir};

// "gemini", "patrickstar", "elixir".
std::string_view CompatibilityRuleName(CompatibilityRule rule);
std::optional<CompatibilityRule> ParseCompatibilityRule(std::string_view name);

struct RuleOptions {
  int world = 1;  // takes the place of the world below
  // Names of parameters that are used under several names, as a tied embedding.
  std::vector<std::string> shared;
  GeminiRuleOptions gemini;
  PatrickStarRuleOptions patrickstar;
  ElixirRuleOptions elixir;
};

// The parameters as a rule sees them. All three hold a model in one type,
// whatever types it has elsewhere, so the list is not split into groups;
// modules are told by the names up to the last dot.
Result<std::vector<RuleParam>> RuleParams(std::span<const ParamSpec> params,
                                          std::span<const std::string> shared);

// Where a rule finds no size, that is a result, not an error. InvalidArgument
// where an option is out of range, the list holds no element or more than
// kMaxRuleElements; Malformed where a shape is.
Result<RuleResult> ApplyRule(CompatibilityRule rule,
                             std::span<const ParamSpec> params,
                             const RuleOptions& options);

// What `chunk_size` costs in Castor, rounded up to Q and packed by Castor's own
// packer: one row for each group, as GroupParams orders them, to stand beside
// the candidates of a search with as many gathered slots. The reason names the
// rule. InvalidArgument where options are not valid or a sum could overflow;
// Malformed where a shape is. REQUIRES: chunk_size from 1 to kMaxRuleElements,
// gathered_slots > 0.
Result<std::vector<ChunkSizeCandidate>> RuleInCastor(
    CompatibilityRule rule, Elements chunk_size,
    std::span<const ParamSpec> params, const PackOptions& options,
    int64_t gathered_slots = 3);

}  // namespace castor

#endif  // CASTOR_CHUNK_RULES_COMPATIBILITY_RULE_H_
