// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_rules.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "chunk/base/units.h"
#include "tools/cli/text_forms.h"
#include "tools/rules/compatibility_rule.h"

namespace castor {
namespace {

std::string_view SystemName(CompatibilityRule rule) {
  switch (rule) {
    case CompatibilityRule::kGemini:
      return "Gemini";
    case CompatibilityRule::kPatrickStar:
      return "PatrickStar";
    case CompatibilityRule::kElixir:
      return "Elixir";
  }
  return "";
}

// "its rule"'s choice, claim and truth.
std::string Sentences(const RuleResult& rule, const SearchReport& report) {
  if (!rule.chunk_size) {
    return fmt::format("its rule picks no size: {}", rule.failure);
  }
  std::string text = fmt::format(
      "its rule picks {} elements and claims a waste of {}",
      Grouped(rule.chunk_size->count()), Percent(rule.claimed_fraction));
  if (rule.ignored_params > 0) {
    text += fmt::format(", without {} of {} elements ({})",
                        Plural(rule.ignored_params, "parameter"),
                        Grouped(rule.ignored.count()), rule.ignored_why);
  }
  text += fmt::format(
      "; its own packing wastes {} in {}{}",
      Percent(rule.packing.waste_fraction()),
      Plural(static_cast<int64_t>(rule.packing.chunks.size()), "chunk"),
      rule.replicated ? ", whole on every rank" : "");
  if (rule.unpacked_params > 0) {
    text +=
        fmt::format(", {} in none", Plural(rule.unpacked_params, "parameter"));
  }
  const ChoiceTotals best = TotalsOf(report.result, &GroupSearchResult::best);
  const double share = best.allocated == Bytes(0)
                           ? 0
                           : static_cast<double>(best.waste.count()) /
                                 static_cast<double>(best.allocated.count());
  return text + fmt::format("; Castor's best {} in {}", Percent(share),
                            Plural(best.chunks, "chunk"));
}

}  // namespace

Result<std::vector<RuleReport>> ApplyRules(
    const SearchReport& report, std::span<const CompatibilityRule> rules) {
  std::vector<RuleReport> reports;
  if (TotalsOf(report.model).elements == 0) return reports;
  RuleOptions options;
  options.world = report.options.pack.world;
  for (const CompatibilityRule rule : rules) {
    RuleReport one;
    CASTOR_ASSIGN_OR_RETURN(one.rule,
                            ApplyRule(rule, report.model.params, options));
    if (one.rule.chunk_size) {
      CASTOR_ASSIGN_OR_RETURN(
          one.in_castor,
          RuleInCastor(rule, *one.rule.chunk_size, report.model.params,
                       report.options.pack, report.options.gathered_slots));
    }
    reports.push_back(std::move(one));
  }
  return reports;
}

std::string RulesText(const SearchReport& report) {
  std::string text;
  for (const RuleReport& rule : report.rules) {
    text += Paragraph(SystemName(rule.rule.rule), Sentences(rule.rule, report));
  }
  return text;
}

JsonValue RuleJson(const RuleResult& rule) {
  JsonValue json;
  json["rule"] = CompatibilityRuleName(rule.rule);
  if (!rule.chunk_size) {
    json["chunk_elements"] = nullptr;
    json["failure"] = rule.failure;
    return json;
  }
  json["chunk_elements"] = rule.chunk_size->count();
  json["claimed_waste_elements"] = rule.claimed_waste.count();
  json["claimed_waste_fraction"] = rule.claimed_fraction;
  json["ignored_parameters"] = rule.ignored_params;
  json["ignored_elements"] = rule.ignored.count();
  json["ignored_why"] = rule.ignored_why;
  json["unpacked_parameters"] = rule.unpacked_params;
  json["unpacked_elements"] = rule.unpacked.count();
  json["replicated"] = rule.replicated;
  json["chunks"] = rule.packing.chunks.size();
  json["own_chunks"] = rule.packing.own_chunks;
  json["allocated_elements"] = rule.packing.allocated.count();
  json["waste_elements"] = rule.packing.waste().count();
  json["waste_fraction"] = rule.packing.waste_fraction();
  return json;
}

}  // namespace castor
