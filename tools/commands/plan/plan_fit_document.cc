// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/memory/tier_pool.h"
#include "placement/plan.h"
#include "placement/planner/plan_record.h"
#include "placement/run_event.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/plan/plan_command.h"
#include "tools/commands/simulate/step_document.h"
#include "tools/report/report_document.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {
namespace {

using TierBytes = std::array<Bytes, 3>;  // by TierIndex

// For people.
std::string_view TitleOf(const ByteTable& bytes, ByteClass kind) {
  switch (kind) {
    case ByteClass::kParams:
      return "parameters";
    case ByteClass::kGrads:
      return "gradients";
    case ByteClass::kMasters:
      return "fp32 masters";
    case ByteClass::kRounding:
      return "rounding to slots";
    case ByteClass::kGathered:
      return "gathered chunks";
    case ByteClass::kPrefetch:
      return "fetched ahead";
    case ByteClass::kKept:
      return "copies kept";
    case ByteClass::kSpare:
      return "room for guesses";
    case ByteClass::kStaging:
      return "pinned staging";
    case ByteClass::kNorm:
      return "sums for the norm";
    case ByteClass::kCommunicator:
      return "communicator";
    case ByteClass::kLeases:
      return "borrowed";
    default:
      break;
  }
  const std::string_view name = bytes.name(kind);
  if (name == "exp_avg") return "first moments";
  if (name == "exp_avg_sq") return "second moments";
  return name;
}

Value Budget(const PlanOutcome& outcome, Tier tier) {
  const ZeroOptions& options = outcome.request.options;
  switch (tier) {
    case Tier::kDevice:
      if (!outcome.request.flags.device_budget) return Value().Or("no limit");
      return options.device_budget;
    case Tier::kHost:
      return options.host_budget;
    case Tier::kNvme:
      break;
  }
  if (options.nvme.empty()) return Value().Or("none");
  return *options.nvme[0].size;
}

void AddTiers(const PlanOutcome& outcome, Document* doc) {
  const ByteTable& bytes = outcome.seal->table;
  Table tiers({.key = "tiers", .word = "tier"},
              {{"tier"},
               Table::JsonOnly("budget_bytes"),
               {"planned_bytes"},
               {"peak_bytes"},
               Table::JsonOnly("classes")});
  for (const Tier tier : kAllTiers) {
    JsonValue classes;
    for (const ByteClass kind : bytes.classes()) {
      classes[fmt::format("{}_bytes", bytes.name(kind))] =
          bytes.at(kind, tier).count();
    }
    const Bytes planned = tier == Tier::kDevice ? outcome.device_total()
                          : tier == Tier::kHost ? outcome.host_total()
                                                : bytes.total(tier);
    tiers.Add({TierName(tier), Budget(outcome, tier), planned,
               outcome.run->peak[TierIndex(tier)], classes});
  }
  doc->Add(std::move(tiers));

  Table table({.word = "class"}, {{"class", "of a rank"},
                                  {"device_bytes", "device"},
                                  {"host_bytes", "host"},
                                  {"nvme_bytes", "nvme"}});
  const auto add = [&](Value title, const TierBytes& row, Form forms,
                       Table::Mark mark = Table::Mark::kNone) {
    table.Add({std::move(title), Value::BytesOrDash(row[0]),
               Value::BytesOrDash(row[1]), Value::BytesOrDash(row[2])},
              mark, forms);
  };
  for (const ByteClass kind : bytes.classes()) {
    add(Value(bytes.name(kind)).As(std::string(TitleOf(bytes, kind))),
        bytes.bytes[static_cast<size_t>(kind)],
        bytes.total(kind) == Bytes(0) ? Form::kPlain : Form::kAll);
  }
  const Bytes beside = outcome.request.borrows ? Bytes(0) : outcome.activations;
  if (beside > Bytes(0)) add("activations", {beside}, Form::kPage);
  const Bytes overhead = outcome.request.flags.overhead();
  if (overhead > Bytes(0)) add("CUDA, NCCL", {overhead}, Form::kPage);
  const Bytes other_states = outcome.request.flags.other_states;
  if (other_states > Bytes(0)) {
    add("states beside chunks", {Bytes(0), other_states}, Form::kPage);
  }
  add("total",
      {outcome.device_total(), outcome.host_total(), bytes.total(Tier::kNvme)},
      Form::kPage, Table::Mark::kChosen);
  table.Add({"budget", Budget(outcome, Tier::kDevice),
             Budget(outcome, Tier::kHost), Budget(outcome, Tier::kNvme)},
            Table::Mark::kNone, Form::kPage);
  TierBytes peak = outcome.run->peak;
  peak[TierIndex(Tier::kDevice)] += overhead + beside;
  peak[TierIndex(Tier::kHost)] += other_states;
  add("peak in use", peak, Form::kPage);
  doc->Add(std::move(table));
  doc->Line({"device", "activations", outcome.activations});
  doc->Line({"device", "overhead", overhead});
}

// Homes by state and tier: how many chunks.
JsonValue HomesJson(const MemoryPlan& memory) {
  JsonValue json;
  const StateNames& names = memory.placement.names;
  for (int k = 0; k < names.states(); ++k) {
    int64_t chunks[3] = {0, 0, 0};
    for (const auto& states : memory.states) {
      const StatePlace& place = states[static_cast<size_t>(k)];
      if (place.bytes > Bytes(0)) ++chunks[TierIndex(place.home)];
    }
    JsonValue& of_state = json[names.of(static_cast<StateKind>(k))];
    for (const Tier tier : kAllTiers) {
      of_state[TierName(tier)] = chunks[TierIndex(tier)];
    }
  }
  return json;
}

// What works for a step: times where the machine is known, for --plain alone.
Table StepTable(const PlanOutcome& outcome, bool timed) {
  Table table({.word = "time"}, {{"name"},
                                 {"", "of a step"},
                                 Table::NotPlain("moved_bytes", "bytes"),
                                 {"", "moves"},
                                 {"seconds", timed ? "time" : ""}});
  for (const ResourceTime& time : outcome.times.resources) {
    const auto& [bytes, moves] = time.moved;
    table.Add({time.name, time.title, Value::BytesOrDash(bytes),
               Value(moves).As(moves > 0 ? Grouped(moves) : "-"),
               Value::Seconds(time.seconds).Or("unknown")});
  }
  const LinkTraffic& within =
      outcome.traffic().on(Tier::kDevice, Tier::kDevice);
  if (within.transfers > 0) {
    table.Add(
        {"", "within the device", within.bytes, within.transfers, Value()},
        Table::Mark::kNone, Form::kPage);
  }
  return table;
}

// What slots are worth; null where the policy prices nothing.
JsonValue SlotsJson(const PlanOutcome& outcome) {
  const std::optional<PlanCertificate>& proved =
      outcome.forecast->plan.certificate;
  if (!proved) return JsonValue();
  std::vector<Bytes> slot_bytes;
  for (const SlotClass& slots : outcome.seal->memory.device_classes) {
    slot_bytes.push_back(slots.slot_bytes);
  }
  return SlotWorthJson(
      StatisticsOfPlan(RunPlanOf(*proved, outcome.seal->memory.problem,
                                 slot_bytes, outcome.step.accesses.size())));
}

void AddCertificate(const PlanReport& report, Document* doc) {
  const PlanOutcome& outcome = report.outcome;
  const PlanCertificate& bound = *report.bound;
  const bool in_seconds =
      outcome.seal->memory.problem.cost_unit == FetchCostUnit::kSeconds;
  const auto cost_text = [&](double cost) {
    return in_seconds ? Value::Seconds(cost).Page()
                      : fmt::format("{:.0f} links", cost);
  };
  doc->Set("certificate",
           Fields({{"fetch_cost", bound.cost},
                   {"lower_bound", bound.lower_bound},
                   {"gap", bound.gap()},
                   {"optimal", bound.optimal},
                   {"unit", in_seconds ? "seconds" : "links"},
                   {"shard_slots", outcome.forecast->shard_slots},
                   {"shards", outcome.forecast->shards},
                   {"slots", SlotsJson(outcome)}}));
  doc->Say("Copies",
           fmt::format("{}: {} a step for {}; no plan takes less than {} ({})",
                       PlanPolicyName(outcome.request.options.policy),
                       Plural(outcome.traffic().gathers, "gather"),
                       cost_text(bound.cost), cost_text(bound.lower_bound),
                       bound.gap() == 0
                           ? "proved best"
                           : fmt::format("gap {}", Percent(bound.gap()))));
}

std::string ShardsText(const PlanOutcome& outcome) {
  const StepForecast& forecast = *outcome.forecast;
  const int64_t slots = forecast.shard_slots;
  if (slots == 0) return "";
  return fmt::format(
      "{} hold{} copies of up to {} shards, which spare {} of the fetches",
      Plural(slots, "gathered slot"), slots == 1 ? "s" : "", forecast.shards,
      outcome.traffic().gathers - outcome.traffic().fetches);
}

// Of all ranks, where the tokens of a step and its time are known.
std::optional<double> TokensPerSecond(const PlanOutcome& outcome) {
  const PlanRequest& request = outcome.request;
  const std::optional<double> seconds = outcome.step_seconds();
  if (!request.activations || !seconds || *seconds <= 0) return std::nullopt;
  const double tokens =
      static_cast<double>(request.activations->batch) *
      static_cast<double>(request.activations->seq) *
      static_cast<double>(request.step.micro_batches * request.flags.world);
  return tokens / *seconds;
}

// A step's time and what it waits for, or else within which bounds it lies, as
// far as that is known.
void AddTimes(const PlanOutcome& outcome, const Table& resources,
              Document* doc) {
  const StepTimes& times = outcome.times;
  doc->Set("times",
           Fields({{"tokens_per_second", TokensPerSecond(outcome)},
                   {"resources", resources.Json()},
                   {"least_seconds", times.least_seconds},
                   {"most_seconds", times.most_seconds},
                   {"unknown", ListOf(times.unknown)},
                   {"step_seconds", outcome.step_seconds()},
                   {"simulated", outcome.simulated
                                     ? SimulatedStepJson(*outcome.simulated)
                                     : JsonValue()}}));
  doc->Add(resources, Form::kPlain);
  if (!outcome.simulated) {
    doc->Say("Time",
             fmt::format("unknown: the machine file has no {}, which a step "
                         "uses; what it has is in the table above",
                         JoinedWithAnd(times.unknown)));
    return;
  }
  const SimulatedStep& step = *outcome.simulated;
  doc->Line({"step_ns", step.ns(), SimResourceName(step.critical())});
  doc->Say("Time",
           fmt::format("a step takes {}; {} if all overlapped, {} if nothing "
                       "did",
                       StepSentence(step),
                       Value::Seconds(times.least_seconds).Page(),
                       Value::Seconds(times.most_seconds).Page()));
  if (const std::optional<double> rate = TokensPerSecond(outcome)) {
    doc->Say(
        "Tokens",
        fmt::format(
            "{} a second{}", Grouped(std::llround(*rate)),
            outcome.request.flags.world == 1 ? "" : ", of all ranks together"));
  }
  doc->Add(StallTable(step), Form::kPageAndPlain);
}

}  // namespace

void AddFit(const PlanReport& report, Document* doc) {
  const PlanOutcome& outcome = report.outcome;
  const StepTraffic& traffic = outcome.traffic();
  AddTiers(outcome, doc);
  doc->Set("homes", HomesJson(outcome.seal->memory));
  doc->Set("step", StepTrafficJson(traffic));
  const Table resources =
      StepTable(outcome, report.subject.machine.has_value());
  doc->Add(resources, Form::kPage);
  doc->Add(LinkTable(traffic), Form::kPlain);
  for (const auto& [name, sent] :
       {std::pair{"all_gather", traffic.all_gather},
        std::pair{"reduce_scatter", traffic.reduce_scatter},
        std::pair{"agreement", LinkTraffic{traffic.agreement, 1}}}) {
    doc->Line({"wire", name, sent.bytes, sent.transfers});
  }
  doc->Say("Fits",
           report.subject.step_source() == StepSource::kDerived
               ? "yes, for the derived step: a trainer that holds more at once "
                 "needs more"
               : "yes: no tier holds more than its budget");
  AddCertificate(report, doc);
  const std::optional<FetchForecast>& fetches = outcome.forecast->fetches;
  doc->Set("prefetch", FetchForecastJson(fetches));
  if (outcome.request.options.prefetch.mode == PrefetchMode::kDeadlines) {
    doc->Say("Prefetch", DeadlinesSentence(fetches, outcome.seal->memory));
  }
  doc->Say("Shards", ShardsText(outcome));
  if (report.subject.machine) AddTimes(outcome, resources, doc);
}

}  // namespace castor
