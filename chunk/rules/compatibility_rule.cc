// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/rules/compatibility_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/chunk_size_search.h"

namespace castor {
namespace {

// The module of a parameter is its name up to the last dot.
std::string_view ModuleOf(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view()
                                       : name.substr(0, dot);
}

Status ValidateRuleOptions(const RuleOptions& options) {
  CASTOR_RETURN_IF_ERROR(ValidatePackOptions({.world = options.world}));
  static constexpr Elements kLargest(int64_t{1} << 40);
  const auto check = [](std::string_view what, Elements value,
                        Elements least) -> Status {
    if (value >= least && value <= kLargest) return OkStatus();
    return InvalidArgument(
        fmt::format("{} of {} elements: it must be between {} and {}", what,
                    value.count(), least.count(), kLargest.count()));
  };
  const GeminiRuleOptions& gemini = options.gemini;
  CASTOR_RETURN_IF_ERROR(
      check("Gemini's least chunk", gemini.min_chunk, Elements(0)));
  CASTOR_RETURN_IF_ERROR(
      check("Gemini's search range", gemini.range, Elements(0)));
  CASTOR_RETURN_IF_ERROR(check("Gemini's step", gemini.step, Elements(1)));
  const PatrickStarRuleOptions& patrickstar = options.patrickstar;
  CASTOR_RETURN_IF_ERROR(
      check("PatrickStar's least chunk", patrickstar.smallest, Elements(1)));
  CASTOR_RETURN_IF_ERROR(check("PatrickStar's largest chunk",
                               patrickstar.largest, patrickstar.smallest));
  CASTOR_RETURN_IF_ERROR(
      check("PatrickStar's step", patrickstar.step, Elements(1)));
  if (options.elixir.element_bytes < 1 || options.elixir.element_bytes > 8) {
    return InvalidArgument(
        fmt::format("Elixir's elements of {} bytes: give 1 to 8",
                    options.elixir.element_bytes));
  }
  return OkStatus();
}

}  // namespace

std::string_view CompatibilityRuleName(CompatibilityRule rule) {
  switch (rule) {
    case CompatibilityRule::kGemini:
      return "gemini";
    case CompatibilityRule::kPatrickStar:
      return "patrickstar";
    case CompatibilityRule::kElixir:
      return "elixir";
  }
  return "unknown";
}

std::optional<CompatibilityRule> ParseCompatibilityRule(std::string_view name) {
  for (const CompatibilityRule rule : kCompatibilityRules) {
    if (CompatibilityRuleName(rule) == name) return rule;
  }
  return std::nullopt;
}

Result<std::vector<RuleParam>> RuleParams(std::span<const ParamSpec> params,
                                          std::span<const std::string> shared) {
  const std::set<std::string_view> shared_names(shared.begin(), shared.end());
  std::vector<RuleParam> seen;
  seen.reserve(params.size());
  std::string_view module;
  int64_t modules = 0;
  Elements total;
  for (const ParamSpec& param : params) {
    const Result<Elements> size = CountElements(param.shape, param.dtype);
    if (!size.ok()) {
      return size.status().WithContext(
          fmt::format("parameter '{}'", param.name));
    }
    if (*size > kMaxRuleElements || total > kMaxRuleElements - *size) {
      return InvalidArgument(fmt::format(
          "the list holds more than {} elements, which no rule was made for; "
          "give fewer or smaller parameters",
          kMaxRuleElements.count()));
    }
    total += *size;
    if (seen.empty() || ModuleOf(param.name) != module) ++modules;
    module = ModuleOf(param.name);
    seen.push_back({.size = *size,
                    .trainable = param.trainable,
                    .shared = shared_names.contains(param.name),
                    .module = modules});
  }
  if (total == Elements(0)) {
    return InvalidArgument(
        "the list holds no element, and no rule has a chunk size for that; "
        "give a model with parameters");
  }
  return seen;
}

Result<RuleResult> ApplyRule(CompatibilityRule rule,
                             std::span<const ParamSpec> params,
                             const RuleOptions& options) {
  CASTOR_RETURN_IF_ERROR(ValidateRuleOptions(options));
  CASTOR_ASSIGN_OR_RETURN(const std::vector<RuleParam> seen,
                          RuleParams(params, options.shared));
  switch (rule) {
    case CompatibilityRule::kGemini: {
      GeminiRuleOptions own = options.gemini;
      own.world = options.world;
      return ApplyGeminiRule(seen, own);
    }
    case CompatibilityRule::kPatrickStar: {
      PatrickStarRuleOptions own = options.patrickstar;
      own.world = options.world;
      return ApplyPatrickStarRule(seen, own);
    }
    case CompatibilityRule::kElixir: {
      ElixirRuleOptions own = options.elixir;
      own.world = options.world;
      return ApplyElixirRule(seen, own);
    }
  }
  return Internal("a rule that has no name");
}

Result<std::vector<ChunkSizeCandidate>> RuleInCastor(
    CompatibilityRule rule, Elements chunk_size,
    std::span<const ParamSpec> params, const PackOptions& options,
    int64_t gathered_slots) {
  CASTOR_CHECK_GT(chunk_size, Elements(0));
  CASTOR_CHECK_LE(chunk_size, kMaxRuleElements);
  CASTOR_RETURN_IF_ERROR(ValidatePackOptions(options));
  const Elements size = RoundUp(chunk_size, ChunkQuantum(options.world));
  std::vector<ChunkSizeCandidate> rows;
  for (const ParamGroup& group : GroupParams(params)) {
    CASTOR_ASSIGN_OR_RETURN(
        ChunkSizeCandidate row,
        CostOfChunkSize(params, group, size, options, gathered_slots));
    row.reason = fmt::format("the size of {}", CompatibilityRuleName(rule));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace castor
