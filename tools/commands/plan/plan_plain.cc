// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_plain.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "chunk/base/tier.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/simulation_result.h"

namespace castor {
namespace {

std::string OutcomeLines(const PlanOutcome& outcome) {
  std::string text;
  const ByteTable& table = outcome.seal->table;
  for (const Tier tier : kAllTiers) {
    text += fmt::format(
        "tier\t{}\t{}\t{}\n", TierName(tier),
        (tier == Tier::kDevice ? outcome.device_total() : table.total(tier))
            .count(),
        outcome.forecast->peak[TierIndex(tier)].count());
  }
  for (int c = 0; c < kByteClasses; ++c) {
    const auto kind = static_cast<ByteClass>(c);
    text += fmt::format("class\t{}\t{}\t{}\t{}\n", ByteClassName(kind),
                        table.at(kind, Tier::kDevice).count(),
                        table.at(kind, Tier::kHost).count(),
                        table.at(kind, Tier::kNvme).count());
  }
  text += fmt::format("device\tactivations\t{}\ndevice\toverhead\t{}\n",
                      outcome.activations.count(),
                      outcome.request.overhead.count());
  const StepTraffic& traffic = outcome.forecast->traffic;
  for (const Tier from : kAllTiers) {
    for (const Tier to : kAllTiers) {
      const LinkTraffic& link = traffic.on(from, to);
      if (link.transfers == 0) continue;
      text += fmt::format("link\t{}\t{}\t{}\t{}\n", TierName(from),
                          TierName(to), link.bytes.count(), link.transfers);
    }
  }
  text += fmt::format("wire\tall_gather\t{}\t{}\n",
                      traffic.all_gather.bytes.count(),
                      traffic.all_gather.transfers);
  text += fmt::format("wire\treduce_scatter\t{}\t{}\n",
                      traffic.reduce_scatter.bytes.count(),
                      traffic.reduce_scatter.transfers);
  text += fmt::format("wire\tagreement\t{}\t1\n", traffic.agreement.count());
  for (const ResourceTime& time : outcome.times.resources) {
    text += fmt::format(
        "time\t{}\t{}\n", time.name,
        time.seconds ? fmt::format("{:.9f}", *time.seconds) : std::string("-"));
  }
  if (outcome.simulated) {
    const SimulatedStep& step = *outcome.simulated;
    text += fmt::format("step_ns\t{}\t{}\n", step.ns(),
                        SimResourceName(step.critical()));
    for (int c = 0; c < kRunCauses; ++c) {
      const SimulatedStall& stall = step.stalls[static_cast<size_t>(c)];
      if (stall.count == 0) continue;
      text += fmt::format("stall\t{}\t{}\t{}\n",
                          RunCauseName(static_cast<RunCause>(c)), stall.ns,
                          stall.count);
    }
  }
  return text;
}

std::string VariantLines(std::string_view kind,
                         const std::vector<PlanVariant>& variants) {
  std::string text;
  for (const PlanVariant& variant : variants) {
    text += fmt::format("{}\t{}\t{}\n", kind, variant.what,
                        PlanCommandText(variant.flags));
  }
  return text;
}

}  // namespace

std::string PlanPlain(const PlanReport& report) {
  const PlanOutcome& outcome = report.outcome;
  std::string text =
      fmt::format("fits\t{}\n", outcome.fits.ok() ? "yes" : "no");
  if (outcome.seal) text += OutcomeLines(outcome);
  text += VariantLines("change", report.changes);
  text += VariantLines("alternative", report.alternatives);
  text += VariantLines("more", report.more);
  if (!report.comparison) return text;
  for (const ComparedBytes& row : report.comparison->budgets) {
    text += fmt::format("other_budget\t{}\t{}\t{}\n", row.what, row.planned,
                        row.measured);
  }
  if (const std::optional<OtherPolicy>& other = report.comparison->policy) {
    text +=
        fmt::format("other_policy\t{}\t{}\n", PlanPolicyName(other->planned),
                    PlanPolicyName(other->run));
  }
  for (const ComparedBytes& row : report.comparison->peaks) {
    text +=
        fmt::format("peak\t{}\t{}\t{}\n", row.what, row.planned, row.measured);
  }
  for (const ComparedBytes& row : report.comparison->links) {
    text += fmt::format("measured\t{}\t{}\t{}\n", row.what, row.planned,
                        row.measured);
  }
  return text;
}

}  // namespace castor
