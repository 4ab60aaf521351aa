// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>

#include "tools/cli/text_forms.h"
#include "tools/commands/search/search_parts.h"
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
  text += fmt::format("; its own packing wastes {} in {}{}",
                      Percent(rule.packing.waste_fraction()),
                      Plural(std::ssize(rule.packing.chunks), "chunk"),
                      rule.replicated ? ", whole on every rank" : "");
  if (rule.unpacked_params > 0) {
    text +=
        fmt::format(", {} in none", Plural(rule.unpacked_params, "parameter"));
  }
  const ChoiceTotals best = TotalsOf(report.result, &GroupSearchResult::best);
  return text + fmt::format("; Castor's best {} in {}",
                            Percent(best.waste_fraction()),
                            Plural(best.chunks, "chunk"));
}

}  // namespace

void SayRules(const SearchReport& report, Document* doc) {
  if (!report.rules_asked_for) return;
  for (const RuleReport& rule : report.rules) {
    doc->Say(SystemName(rule.rule.rule), Sentences(rule.rule, report));
  }
}

JsonValue RuleJson(const SearchReport& report, const RuleReport& one) {
  const RuleResult& rule = one.rule;
  if (!rule.chunk_size) {
    return Fields({{"rule", CompatibilityRuleName(rule.rule)},
                   {"chunk_elements", {}},
                   {"failure", rule.failure}});
  }
  JsonValue json = Fields({{"rule", CompatibilityRuleName(rule.rule)},
                           {"chunk_elements", *rule.chunk_size},
                           {"claimed_waste_elements", rule.claimed_waste},
                           {"claimed_waste_fraction", rule.claimed_fraction},
                           {"ignored_parameters", rule.ignored_params},
                           {"ignored_elements", rule.ignored},
                           {"ignored_why", rule.ignored_why},
                           {"unpacked_parameters", rule.unpacked_params},
                           {"unpacked_elements", rule.unpacked},
                           {"replicated", rule.replicated},
                           {"chunks", rule.packing.chunks.size()},
                           {"own_chunks", rule.packing.own_chunks},
                           {"allocated_elements", rule.packing.allocated},
                           {"waste_elements", rule.packing.waste()},
                           {"waste_fraction", rule.packing.waste_fraction()}});
  if (!one.in_castor.empty()) {
    json["in_castor"] = ChosenJson(report, one.in_castor);
  }
  return json;
}

}  // namespace castor
