// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_tables.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "chunk/base/tier.h"
#include "placement/plan.h"
#include "tools/cli/duration_text.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/plan/plan_report.h"

namespace castor {
namespace {

using Align = TextTable::Align;
using Row = std::array<Bytes, 3>;  // by TierIndex

size_t At(Tier tier) { return TierIndex(tier); }

// Nothing is shown as nothing.
std::string Cell(Bytes bytes) {
  return bytes == Bytes(0) ? std::string("-") : FormatSize(bytes);
}

void AddRow(TextTable& table, std::string_view title, const Row& row,
            TextTable::Mark mark = TextTable::Mark::kNone) {
  table.AddRow({std::string(title), Cell(row[At(Tier::kDevice)]),
                Cell(row[At(Tier::kHost)]), Cell(row[At(Tier::kNvme)])},
               mark);
}

std::string BudgetCell(const PlanOutcome& outcome, Tier tier) {
  const ZeroOptions& options = outcome.request.options;
  switch (tier) {
    case Tier::kDevice:
      return outcome.request.device_limited ? FormatSize(options.device_budget)
                                            : std::string("no limit");
    case Tier::kHost:
      return FormatSize(options.host_budget);
    case Tier::kNvme:
      break;
  }
  return options.nvme.empty() ? std::string("none")
                              : FormatSize(*options.nvme[0].size);
}

std::string TimeCell(const std::optional<double>& seconds) {
  return seconds ? SecondsShown(*seconds) : std::string("unknown");
}

std::string DifferenceCell(const ComparedBytes& row) {
  const std::optional<double> difference = row.difference();
  if (!difference) return "-";
  if (*difference == 0) return "equal";
  return fmt::format("{:+.2f} %", *difference * 100);
}

std::string TimeDifferenceCell(const PlanComparison& comparison) {
  if (!comparison.planned_seconds || comparison.measured_ns == 0) return "-";
  const double measured = static_cast<double>(comparison.measured_ns) / 1e9;
  return fmt::format("{:+.2f} %",
                     (measured / *comparison.planned_seconds - 1) * 100);
}

}  // namespace

std::string SecondsShown(double seconds) {
  return FormatDuration(static_cast<int64_t>(std::llround(seconds * 1e9)));
}

std::string ByteTableText(const PlanOutcome& outcome, Emphasis emphasis) {
  TextTable table(
      {{"of a rank", Align::kLeft}, {"device"}, {"host"}, {"nvme"}});
  const ByteTable& bytes = outcome.seal->table;
  for (int c = 0; c < kByteClasses; ++c) {
    const auto kind = static_cast<ByteClass>(c);
    if (bytes.total(kind) == Bytes(0)) continue;
    AddRow(table, ByteClassTitle(kind), bytes.bytes[static_cast<size_t>(c)]);
  }
  if (!outcome.request.borrows && outcome.activations > Bytes(0)) {
    AddRow(table, "activations", {outcome.activations, {}, {}});
  }
  if (outcome.request.overhead > Bytes(0)) {
    AddRow(table, "CUDA, NCCL", {outcome.request.overhead, {}, {}});
  }
  AddRow(table, "total",
         {outcome.device_total(), bytes.total(Tier::kHost),
          bytes.total(Tier::kNvme)},
         TextTable::Mark::kChosen);
  table.AddRow({"budget", BudgetCell(outcome, Tier::kDevice),
                BudgetCell(outcome, Tier::kHost),
                BudgetCell(outcome, Tier::kNvme)});
  Row peak = outcome.forecast->peak;
  peak[At(Tier::kDevice)] += outcome.request.overhead;
  if (!outcome.request.borrows) peak[At(Tier::kDevice)] += outcome.activations;
  AddRow(table, "peak in use", peak);
  return table.Render(emphasis);
}

std::string StepTableText(const PlanOutcome& outcome, Emphasis emphasis) {
  const bool timed = !outcome.times.resources.empty();
  std::vector<TextTable::Column> columns = {
      {"of a step", Align::kLeft}, {"bytes"}, {"moves"}};
  if (timed) columns.push_back({"time"});
  TextTable table(std::move(columns));
  const auto add = [&](std::string_view title, std::string_view name,
                       Bytes bytes, int64_t moves) {
    if (bytes == Bytes(0)) return;
    std::vector<std::string> cells = {
        std::string(title), FormatSize(bytes),
        moves > 0 ? Grouped(moves) : std::string("-")};
    if (timed) {
      std::string time = "-";
      for (const ResourceTime& resource : outcome.times.resources) {
        if (resource.name == name) time = TimeCell(resource.seconds);
      }
      cells.push_back(std::move(time));
    }
    table.AddRow(std::move(cells));
  };
  const StepTraffic& traffic = outcome.forecast->traffic;
  const auto link = [&](std::string_view title, std::string_view name,
                        Tier from, Tier to) {
    const LinkTraffic& moved = traffic.on(from, to);
    add(title, name, moved.bytes, moved.transfers);
  };
  link("host to device", "host_to_device", Tier::kHost, Tier::kDevice);
  link("device to host", "device_to_host", Tier::kDevice, Tier::kHost);
  link("nvme to host", "nvme_read", Tier::kNvme, Tier::kHost);
  link("host to nvme", "nvme_write", Tier::kHost, Tier::kNvme);
  link("within the device", "", Tier::kDevice, Tier::kDevice);
  add("all-gather", "all_gather", traffic.all_gather.bytes,
      traffic.all_gather.transfers);
  add("reduce-scatter", "reduce_scatter", traffic.reduce_scatter.bytes,
      traffic.reduce_scatter.transfers);
  add("optimizer on the host", "optimizer",
      Bytes(traffic.updated_on_host.count() * kAdamBytesPerParameter), 0);
  for (const ResourceTime& resource : outcome.times.resources) {
    if (resource.name == "compute") {
      table.AddRow({"compute", "-", "-", TimeCell(resource.seconds)});
    }
  }
  return table.Render(emphasis);
}

std::string VariantTableText(const PlanOutcome& outcome,
                             std::span<const PlanVariant> variants,
                             Emphasis emphasis) {
  const bool timed = !outcome.times.resources.empty();
  std::vector<TextTable::Column> columns = {{"instead", Align::kLeft},
                                            {"device"},
                                            {"host"},
                                            {"nvme"},
                                            {"moved a step"}};
  if (timed) columns.push_back({"a step"});
  TextTable table(std::move(columns));
  const auto add = [&](const std::string& what, const PlanOutcome& one,
                       TextTable::Mark mark) {
    std::vector<std::string> cells = {what, FormatSize(one.device_total()),
                                      Cell(one.seal->table.total(Tier::kHost)),
                                      Cell(one.seal->table.total(Tier::kNvme)),
                                      FormatSize(one.moved())};
    if (timed) cells.push_back(TimeCell(one.step_seconds()));
    table.AddRow(std::move(cells), mark);
  };
  if (outcome.seal) add("as asked for", outcome, TextTable::Mark::kChosen);
  for (const PlanVariant& variant : variants) {
    add(variant.what, variant.outcome, TextTable::Mark::kNone);
  }
  return table.Render(emphasis);
}

std::string OtherSettingsText(const PlanComparison& comparison) {
  std::vector<std::string> settings;
  for (const ComparedBytes& budget : comparison.budgets) {
    settings.push_back(fmt::format(
        "{} for {} where {} is planned", FormatSize(Bytes(budget.measured)),
        budget.what, FormatSize(Bytes(budget.planned))));
  }
  if (comparison.policy) {
    settings.push_back(fmt::format("policy {} in place of {}",
                                   PlanPolicyName(comparison.policy->run),
                                   PlanPolicyName(comparison.policy->planned)));
  }
  if (settings.empty()) return "";
  return Paragraph(
      "Not alike",
      fmt::format("the run had {}: numbers differ for that reason too",
                  JoinedWithAnd(settings)));
}

std::string ComparisonText(const PlanComparison& comparison,
                           Emphasis emphasis) {
  TextTable table({{"next to the run", Align::kLeft},
                   {"planned"},
                   {"measured"},
                   {"difference"}});
  const auto add = [&](std::string_view prefix, const ComparedBytes& row) {
    table.AddRow({fmt::format("{}{}", prefix, row.what),
                  FormatSize(Bytes(row.planned)),
                  FormatSize(Bytes(row.measured)), DifferenceCell(row)});
  };
  for (const ComparedBytes& row : comparison.peaks) add("peak, ", row);
  for (const ComparedBytes& row : comparison.links) add("", row);
  table.AddRow({"a step", TimeCell(comparison.planned_seconds),
                FormatDuration(comparison.measured_ns),
                TimeDifferenceCell(comparison)});
  return table.Render(emphasis);
}

}  // namespace castor
