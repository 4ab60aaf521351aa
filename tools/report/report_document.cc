// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/report_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "placement/run_event.h"
#include "tools/cli/text/text_forms.h"
#include "tools/report/statistics/step_detail.h"

namespace castor {
namespace {

double ShareOf(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string ShareText(int64_t part, int64_t whole) {
  return Percent(ShareOf(part, whole));
}

// Names come from a file: they must not talk to the terminal, nor fill it.
std::string Shortened(std::string_view params) {
  constexpr size_t kMost = 60;
  if (params.size() <= kMost) return Quoted(params);
  return Quoted(fmt::format("{}...", params.substr(0, kMost)));
}

JsonValue SpreadJson(const Spread& spread) {
  return Fields({{"min", spread.min},
                 {"median", spread.median},
                 {"max", spread.max},
                 {"max_step", spread.max_step}});
}

class Builder {
 public:
  Builder(std::string_view name, const RunStatistics& run,
          const Status& completeness, const Advice& advice, StripInk ink)
      : name_(name),
        run_(run),
        completeness_(completeness),
        advice_(advice),
        ink_(ink) {}

  Document Build() {
    Record();
    Steps();
    Ranks();
    Tiers();
    Arenas();
    // The page shows links and stalls before the plan, --plain after it.
    PlanData();
    Homes();
    Links();
    Stalls();
    Marks();
    if (run_.plan && !run_.steps.empty()) PlanPage();
    Proposals();
    return std::move(doc_);
  }

 private:
  void Record() {
    JsonValue record =
        Fields({{"file", name_}, {"complete", completeness_.ok()}});
    if (!completeness_.ok()) record["reason"] = completeness_.message();
    const std::pair<std::string_view, Value> facts[] = {
        {"file_bytes", run_.file_bytes},
        {"events", run_.events},
        {"dropped_events", run_.dropped},
        {"ranks", run_.ranks.size()},
        {"world", run_.world},
        {"stage", run_.stage},
        {"chunks", run_.chunks},
        {"chunk_bytes", run_.chunk_bytes}};
    doc_.Line({"record", "file", name_});
    doc_.Line({"record", "complete", completeness_.ok()});
    for (const auto& [key, value] : facts) {
      record[key] = value.Json();
      doc_.Line({"record", key, value});
    }
    if (run_.stage < 0) record["stage"] = JsonValue();
    doc_.Line({"record", "gathers", run_.copies});
    doc_.Line({"record", "prefetched_gathers", run_.prefetched_copies});
    doc_.Line({"record", "divergences", run_.divergences});
    doc_.Line({"record", "guesses", run_.guesses});
    doc_.Line({"record", "wrong_guesses", run_.wrong_guesses});
    doc_.Set("record", record);
    std::string text = Shown(name_) + ": ";
    if (run_.stage >= 0) {
      text += fmt::format("{}{}, ZeRO stage {}, {} of up to {}, ",
                          Plural(std::ssize(run_.ranks), "rank"),
                          std::ssize(run_.ranks) == run_.world
                              ? std::string()
                              : fmt::format(" of {}", run_.world),
                          run_.stage, Plural(run_.chunks, "chunk"),
                          FormatSize(Bytes(run_.chunk_bytes)));
    }
    doc_.Text(fmt::format("{}{} events, {} dropped, {}\n", text, run_.events,
                          run_.dropped, FormatSize(Bytes(run_.file_bytes))));
    doc_.Gap();
    const std::string headline = Headline(run_);
    doc_.Set("headline", headline);
    doc_.Line({"headline", headline});
    if (run_.steps.empty()) doc_.Text("No step of a run is in the record.\n");
    if (run_.complete_steps > 0) doc_.Say("", headline + ".");
  }

  void Steps() {
    const auto step_json = [&](const StepStatistics& step) {
      doc_.Line({"step", step.step, step.complete ? "complete" : "partial",
                 step.ns, step.stalled_ns});
      JsonValue bytes = JsonValue::Object();
      for (size_t i = 0; i < run_.links.size(); ++i) {
        bytes[LinkName(run_.links[i].link)] = step.link_bytes[i];
      }
      return Fields({{"step", step.step},
                     {"complete", step.complete},
                     {"time_ns", step.ns},
                     {"stalled_ns", step.stalled_ns},
                     {"link_bytes", bytes}});
    };
    doc_.Set("steps", ListOf(run_.steps, step_json));
    doc_.Set("complete_steps", run_.complete_steps);
    doc_.Set("step_ns", SpreadJson(run_.step_ns));
    doc_.Set("step_stalled_ns", SpreadJson(run_.stalled_ns));
    doc_.Set("gathers", run_.copies);
    doc_.Set("prefetched_gathers", run_.prefetched_copies);
    doc_.Set("divergences", run_.divergences);
    doc_.Set("guesses", run_.guesses);
    doc_.Set("wrong_guesses", run_.wrong_guesses);
    doc_.Set("wrong_guess_ns", run_.wrong_ns);
    if (!run_.steps.empty()) StepsPage();
  }

  void StepsPage() {
    const int32_t first = run_.steps.front().step;
    const int32_t last = run_.steps.back().step;
    const std::string name = first == last
                                 ? fmt::format("Step {}", first)
                                 : fmt::format("Steps {}-{}", first, last);
    const int64_t shown = std::ssize(run_.steps);
    if (run_.complete_steps == 0) {
      doc_.Text(fmt::format("{}: none of {} is complete\n", name, shown));
      return;
    }
    Table table({}, {{"", name},
                     {"", "min"},
                     {"", "median"},
                     {"", "max"},
                     {"", "most in"}});
    const auto add = [&](std::string_view what, const Spread& spread,
                         const auto& value) {
      table.Add(
          {what, value(spread.min), value(spread.median), value(spread.max),
           spread.max > spread.min ? fmt::format("step {}", spread.max_step)
                                   : ""});
    };
    add("time", run_.step_ns, Value::Ns);
    add("stalled", run_.stalled_ns, Value::Ns);
    for (size_t i = 0; i < run_.links.size(); ++i) {
      if (run_.link_bytes[i].max == 0) continue;
      add(LinkName(run_.links[i].link), run_.link_bytes[i],
          [](int64_t bytes) { return Value(Bytes(bytes)); });
    }
    doc_.Add(std::move(table), Form::kPage);
    if (run_.complete_steps < shown) {
      doc_.Text(fmt::format(
          "  {} of {} steps are complete, the others are left out here\n",
          run_.complete_steps, shown));
    }
  }

  void Ranks() {
    doc_.Set("ranks", ListOf(run_.ranks, [](const RankStatistics& rank) {
               return Fields({{"rank", rank.rank},
                              {"steps_ns", rank.step_ns},
                              {"between_ns", rank.between_ns},
                              {"stalled_ns", rank.stalled_ns},
                              {"updating_ns", rank.updating_ns},
                              {"moving_ns", rank.moving_ns},
                              {"unhidden_ns", rank.unhidden_ns}});
             }));
    if (run_.steps.empty()) return;
    doc_.Gap();
    const RankStatistics& all = run_.all_ranks;
    std::string text =
        fmt::format("Time in steps: computing {}, stalled {}",
                    ShareText(all.step_ns - all.stalled_ns, all.step_ns),
                    ShareText(all.stalled_ns, all.step_ns));
    if (all.updating_ns > 0) {
      text += fmt::format("; optimizer at work {}",
                          ShareText(all.updating_ns, all.step_ns));
    }
    if (all.moving_ns > 0) {
      text += fmt::format(
          "; moves hidden behind computing {}",
          ShareText(all.moving_ns - all.unhidden_ns, all.moving_ns));
    }
    doc_.Text(text + "\n");
    constexpr double kWorthSaying = 0.05;
    if (ShareOf(all.between_ns, all.step_ns + all.between_ns) > kWorthSaying) {
      doc_.Text(
          fmt::format("Between steps, counted in none of them: {} of the run\n",
                      ShareText(all.between_ns, all.step_ns + all.between_ns)));
    }
    if (run_.copies > 0) {
      doc_.Text(fmt::format(
          "Chunks all-gathered on a device: {} times, {} ahead of use; steps "
          "that departed from the recorded one: {}\n",
          run_.copies, ShareText(run_.prefetched_copies, run_.copies),
          run_.divergences));
    }
    if (run_.guesses > 0) {
      doc_.Text(fmt::format(
          "Chunks updated before the norm was known: {} times, {} in vain, "
          "which took {} of update time\n",
          run_.guesses, ShareText(run_.wrong_guesses, run_.guesses),
          FormatDuration(run_.wrong_ns)));
    }
    if (run_.ranks.size() == 1) return;
    const auto share = [](const RankStatistics& rank) {
      return ShareOf(rank.stalled_ns, rank.step_ns);
    };
    const auto [least, most] = std::minmax_element(
        run_.ranks.begin(), run_.ranks.end(),
        [&](const auto& a, const auto& b) { return share(a) < share(b); });
    doc_.Text(fmt::format(
        "Ranks: stalled most, rank {}: {}; least, rank {}: {}\n", most->rank,
        Percent(share(*most)), least->rank, Percent(share(*least))));
  }

  void Tiers() {
    Table table(
        {.key = "tiers", .word = "tier"},
        {{"tier", "tier"},
         {"", "over a step"},
         {"peak_bytes", "peak"},
         {"budget_bytes", "budget", Table::Align::kRight, Form::kPageAndPlain},
         {"", "full"},
         {"peak_rank"},
         {"peak_step"},
         Table::JsonOnly("budget_bytes"),
         Table::JsonOnly("over_step_bytes")});
    for (const TierStatistics& tier : run_.tiers) {
      const Bytes budget(tier.budget_bytes);
      const bool limited = tier.budget_bytes > 0;
      const auto full =
          static_cast<double>(limited ? tier.budget_bytes : tier.peak_bytes);
      std::vector<double> shares = tier.over_step;
      for (double& share : shares) share = full > 0 ? share / full : 0;
      table.Add(
          {TierName(tier.tier), Strip(shares), Bytes(tier.peak_bytes),
           limited ? Value(budget) : Value(budget).As("not given"),
           limited ? Value::Share(tier.peak_bytes, tier.budget_bytes) : Value(),
           tier.peak_rank, tier.peak_step, limited ? Value(budget) : Value(),
           ListOf(tier.over_step,
                  [](double bytes) { return static_cast<int64_t>(bytes); })});
    }
    Add(std::move(table));
  }

  // Where states were at home, one line for each tier and time.
  void Homes() {
    std::vector<Table::Column> columns = {{"from_step", "homes from step"},
                                          {"tier", "tier"},
                                          {"budget_bytes", "budget"}};
    for (const std::string& state : run_.states.all()) {
      columns.push_back({state + "_bytes", state});
    }
    Table table({.key = "homes", .word = "homes"}, std::move(columns));
    for (const RunHomesInfo& homes : run_.homes) {
      for (const Tier tier : kAllTiers) {
        const size_t t = TierIndex(tier);
        const Bytes budget(homes.budget_bytes[t]);
        std::vector<Value> row = {
            homes.step, TierName(tier),
            budget > Bytes(0) ? Value(budget) : Value().Or("not given")};
        for (int k = 0; k < run_.states.states(); ++k) {
          row.push_back(Bytes(homes.home_bytes[k][t]));
        }
        table.Add(std::move(row));
      }
    }
    // People are told where it changed.
    const bool page = run_.homes.size() > 1 && !run_.steps.empty();
    doc_.Add(std::move(table), page ? Form::kAll : Form::kData);
  }

  void Marks() {
    Table table({.key = "marks", .word = "mark"}, {{"step", "marks in step"},
                                                   {"rank", "rank"},
                                                   {"at_ns", "at"},
                                                   {"words", "words"}});
    for (const RunMark& mark : run_.marks) {
      table.Add({mark.step, mark.rank, Value::Ns(mark.at_ns),
                 Value::Name(mark.words)});
    }
    doc_.Add(std::move(table));
  }

  void Arenas() {
    const auto json = [](const RunArenaInfo& arena) {
      return Fields({{"name", arena.name},
                     {"rank", arena.rank},
                     {"allocator", arena.allocator},
                     {"locked", arena.locked},
                     {"bound", arena.bound},
                     {"budget_bytes", arena.budget_bytes},
                     {"peak_bytes", arena.peak_bytes},
                     {"in_use_bytes", arena.in_use_bytes},
                     {"requested_bytes", arena.requested_bytes},
                     {"buffers", arena.buffers},
                     {"allocated", arena.allocated},
                     {"refused", arena.refused},
                     {"live_bytes", arena.live_bytes},
                     {"active_bytes", arena.active_bytes},
                     {"resident_bytes", arena.resident_bytes},
                     {"retained_bytes", arena.retained_bytes},
                     {"metadata_bytes", arena.metadata_bytes}});
    };
    doc_.Set("pinned_arenas", ListOf(run_.arenas, json));
    // By name and allocator: over how many ranks, and all in all.
    std::map<std::pair<std::string, std::string>, std::pair<int, RunArenaInfo>>
        sums;
    for (const RunArenaInfo& arena : run_.arenas) {
      doc_.Line({"arena", Quoted(arena.name), arena.rank,
                 Quoted(arena.allocator), arena.peak_bytes, arena.budget_bytes,
                 arena.live_bytes, arena.active_bytes, arena.resident_bytes,
                 arena.retained_bytes, arena.allocated, arena.refused});
      auto& [ranks, sum] = sums[{arena.name, arena.allocator}];
      sum.locked = arena.locked && (ranks == 0 || sum.locked);
      ++ranks;
      for (const auto field :
           {&RunArenaInfo::peak_bytes, &RunArenaInfo::budget_bytes,
            &RunArenaInfo::live_bytes, &RunArenaInfo::active_bytes,
            &RunArenaInfo::resident_bytes, &RunArenaInfo::retained_bytes,
            &RunArenaInfo::refused}) {
        sum.*field += arena.*field;
      }
    }
    Table table({}, {{"", "pinned arenas"},
                     {"", "peak"},
                     {"", "budget"},
                     {"", "live"},
                     {"", "active"},
                     {"", "resident"},
                     {"", "retained"},
                     {"", "refused"},
                     {"", "allocator"}});
    for (const auto& [key, value] : sums) {
      const auto& [ranks, sum] = value;
      table.Add(
          {Value::Name(key.first), Bytes(sum.peak_bytes),
           Bytes(sum.budget_bytes), Bytes(sum.live_bytes),
           Bytes(sum.active_bytes), Bytes(sum.resident_bytes),
           Bytes(sum.retained_bytes), sum.refused,
           fmt::format("{}, {}{}", Shown(key.second), Plural(ranks, "rank"),
                       sum.locked ? "" : ", not locked")});
    }
    if (!run_.steps.empty()) doc_.Add(std::move(table), Form::kPage);
  }

  // Of the machine that the run was told of, in 10^9 bytes a second.
  std::optional<double> MachineSpeed(const LinkId& link) const {
    if (!advice_.machine) return std::nullopt;
    const TierModel& machine = *advice_.machine;
    const auto speed = [](const auto& model) -> std::optional<double> {
      if (!model) return std::nullopt;
      return static_cast<double>(model->bytes_per_second) / 1e9;
    };
    using enum Tier;
    if (link.kind == RunEventKind::kGather) return speed(machine.all_gather);
    if (link.kind == RunEventKind::kReduceScatter) {
      return speed(machine.reduce_scatter);
    }
    if (link.from == kHost && link.to == kDevice) {
      return speed(machine.host_to_device);
    }
    if (link.from == kDevice && link.to == kHost) {
      return speed(machine.device_to_host);
    }
    if (link.from == kNvme) return speed(machine.nvme_read);
    if (link.to == kNvme) return speed(machine.nvme_write);
    return std::nullopt;
  }

  void Links() {
    Table table({.key = "links", .word = "link"},
                {{"link", "link"},
                 {"", "busy over a step"},
                 {"moves"},
                 {"moved_bytes", "bytes"},
                 Table::JsonOnly("moved_bytes_by_cause"),
                 Table::JsonOnly("step_bytes"),
                 Table::PlainOnly("busy_ns"),
                 {"outside_bytes"},
                 Table::JsonOnly("busy_ns"),
                 Table::JsonOnly("unhidden_ns"),
                 Table::NotPlain("busy_share", "busy"),
                 Table::NotPlain("gigabytes_per_second", "GB/s"),
                 Table::JsonOnly("machine_gigabytes_per_second"),
                 Table::JsonOnly("over_step_busy_share")});
    Bytes outside;
    for (size_t i = 0; i < run_.links.size(); ++i) {
      const LinkStatistics& link = run_.links[i];
      outside += Bytes(link.outside_bytes);
      const double speed = link.gigabytes_per_second();
      table.Add({LinkName(link.link), Strip(link.over_step), link.count,
                 Bytes(link.bytes), ByCauseJson(link.bytes_by_cause),
                 SpreadJson(run_.link_bytes[i]), link.busy_ns,
                 link.outside_bytes, link.busy_ns, run_.link_unhidden_ns[i],
                 Value::Share(link.busy_share),
                 Value(speed).As(fmt::format("{:.2f}", speed)),
                 MachineSpeed(link.link), ListOf(link.over_step)});
    }
    Add(std::move(table));
    if (outside == Bytes(0) || run_.steps.empty()) return;
    doc_.Text(fmt::format(
        "  before the first step or after the last, not counted above: {}\n",
        FormatSize(outside)));
  }

  void Stalls() {
    JsonValue stalls = JsonValue::Array();
    Table table({}, {{"", "waited for"},
                     {"", "time"},
                     {"", "of steps"},
                     {"", "count"},
                     {"", "worst chunks"}});
    Document hints;
    for (const StallStatistics& stall : run_.stalls) {
      const std::string_view cause = RunCauseName(stall.cause);
      JsonValue& json = stalls.Append(Fields(
          {{"cause", cause}, {"count", stall.count}, {"time_ns", stall.ns}}));
      doc_.Line({"stall", cause, stall.count, stall.ns});
      json["worst_chunks"] = JsonValue::Array();
      std::vector<std::string> worst;
      for (const ChunkStall& chunk : stall.worst) {
        json["worst_chunks"].Append(Fields({{"chunk", chunk.chunk},
                                            {"parameters", chunk.params},
                                            {"count", chunk.count},
                                            {"time_ns", chunk.ns}}));
        doc_.Line({"chunk", cause, chunk.chunk, chunk.count, chunk.ns,
                   Quoted(chunk.params)});
        worst.push_back(
            fmt::format("{} ({})", chunk.chunk, FormatDuration(chunk.ns)));
      }
      if (stall.busiest) {
        json["busiest_link"] = LinkName(*stall.busiest);
        json["busiest_share"] = stall.busiest_share;
      }
      table.Add({cause, Value::Ns(stall.ns),
                 Value::Share(stall.ns, run_.all_ranks.step_ns), stall.count,
                 fmt::format("{}", fmt::join(worst, ", "))});
      if (run_.steps.empty()) continue;
      const std::string hint =
          StallHint(stall, run_.divergences, run_.steps.back().step,
                    /*relief=*/advice_.simulated_ns == 0);
      json["hint"] = hint;
      std::vector<std::string> words;
      if (!stall.worst.empty() && !stall.worst.front().params.empty()) {
        words.push_back(fmt::format("chunk {} is {}", stall.worst.front().chunk,
                                    Shortened(stall.worst.front().params)));
      }
      if (!hint.empty()) words.push_back(hint);
      hints.Say(cause, fmt::format("{}", fmt::join(words, "; ")));
    }
    doc_.Set("stalls", stalls);
    doc_.Set("plan", plan_);
    if (run_.steps.empty()) return;
    if (run_.stalls.empty()) {
      doc_.Gap();
      doc_.Text("No stalls.\n");
    }
    doc_.Add(std::move(table), Form::kPage);
    doc_.Text(hints.Page());
  }

  void Proposals() {
    doc_.Set("simulated_step_ns",
             advice_.simulated_ns > 0 ? Value(advice_.simulated_ns) : Value());
    doc_.Set("forecast", ForecastJson(advice_, run_));
    doc_.Set("proposals", ProposalsJson(advice_));
    doc_.Set("no_proposal", advice_.why_none);
    if (run_.complete_steps == 0) return;
    doc_.Gap();
    for (const Proposal& proposal : advice_.proposals) {
      const std::string text = ProposalText(advice_, proposal);
      doc_.Line({"proposal", proposal.ns, proposal.more.count(), text});
      doc_.Say("proposal", text);
      for (const auto& [where, line] : proposal.lines) {
        doc_.SayUnbroken("  " + where, line);
      }
    }
    if (!advice_.why_none.empty()) {
      doc_.Say("proposal", fmt::format("none: {}", advice_.why_none));
    }
  }

  void PlanData() {
    if (!run_.plan) return;
    const std::string_view unit = run_.plan->in_seconds ? "seconds" : "links";
    plan_ = Fields({{"made_after_step", run_.plan->step},
                    {"unit", unit},
                    {"accesses", run_.plan->moments},
                    {"slots", SlotWorthJson(*run_.plan)}});
    for (const SlotWorth& each : run_.plan->slots) {
      doc_.Line({"slots", each.slot_bytes, each.slots, unit, each.cost,
                 each.lower_bound, each.one_more_saves.value_or(-1),
                 each.one_less_costs.value_or(-1)});
    }
  }

  // What the plan's fetches cost, and what a slot is worth.
  void PlanPage() {
    const PlanStatistics& plan = *run_.plan;
    const auto cost = [&](std::optional<double> cost) {
      return plan.in_seconds ? Value::Seconds(cost) : Value(cost);
    };
    Table table({}, {{"", "slots"},
                     {"", "of"},
                     {"", "cost a step"},
                     {"", "least of any plan"},
                     {"", "for copies of shards"},
                     {"", "one more saves"},
                     {"", "one less costs"},
                     {"", "dearest at accesses"}});
    for (const SlotWorth& each : plan.slots) {
      table.Add({each.slots, Bytes(each.slot_bytes), cost(each.cost),
                 each.optimal ? Value("proved") : cost(each.lower_bound),
                 each.shard_slots == 0
                     ? Value()
                     : Value(fmt::format("{} of up to {}", each.shard_slots,
                                         each.shards)),
                 cost(each.one_more_saves), cost(each.one_less_costs),
                 each.dearest_first < 0
                     ? Value()
                     : Value(fmt::format("{} to {} of {}", each.dearest_first,
                                         each.dearest_last, plan.moments))});
    }
    doc_.Gap();
    doc_.Text(fmt::format("Plan after step {}: fetches of a step, by {}\n",
                          plan.step,
                          plan.in_seconds ? "the time that measured links take"
                                          : "the links that they cross"));
    doc_.Add(std::move(table), Form::kPage);
  }

  // On the page only where there are steps.
  void Add(Table table) {
    doc_.Add(std::move(table), run_.steps.empty() ? Form::kData : Form::kAll);
  }

  std::string Strip(const std::vector<double>& shares) const {
    return "|" + DrawStrip(shares, ink_) + "|";
  }

  const std::string_view name_;
  const RunStatistics& run_;
  const Status& completeness_;
  const Advice& advice_;
  const StripInk ink_;
  JsonValue plan_;
  Document doc_{"castor.report/1"};
};

}  // namespace

Document ReportDocument(std::string_view name, const RunStatistics& run,
                        const Status& completeness, const Advice& advice,
                        StripInk ink) {
  return Builder(name, run, completeness, advice, ink).Build();
}

JsonValue ByCauseJson(const std::array<int64_t, kRunCauses>& counts) {
  JsonValue json = JsonValue::Object();
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0) continue;
    json[RunCauseName(static_cast<RunCause>(c))] = counts[c];
  }
  return json;
}

JsonValue SlotWorthJson(const PlanStatistics& plan) {
  return ListOf(plan.slots, [](const SlotWorth& each) {
    JsonValue json = Fields({{"slot_bytes", each.slot_bytes},
                             {"slots", each.slots},
                             {"shard_slots", each.shard_slots},
                             {"shards", each.shards},
                             {"cost", each.cost},
                             {"lower_bound", each.lower_bound},
                             {"optimal", each.optimal},
                             {"one_more_saves", each.one_more_saves},
                             {"one_less_costs", each.one_less_costs}});
    if (each.dearest_first >= 0) {
      json["dearest_accesses"] = JsonValue::Array();
      json["dearest_accesses"].Append(each.dearest_first);
      json["dearest_accesses"].Append(each.dearest_last);
    }
    return json;
  });
}

JsonValue ForPage(const JsonValue& document) {
  constexpr size_t kMostSteps = 1000;
  const JsonValue& steps = document["steps"];
  if (steps.size() <= kMostSteps) return document;
  const size_t each = (steps.size() + kMostSteps - 1) / kMostSteps;
  const auto ns = [&](size_t i) { return steps[i]["time_ns"].integer(); };
  JsonValue kept = JsonValue::Array();
  for (size_t i = 0; i < steps.size(); i += each) {
    size_t slowest = i;
    for (size_t j = i; j < std::min(i + each, steps.size()); ++j) {
      if (ns(j) > ns(slowest)) slowest = j;
    }
    kept.Append(steps[slowest]);
  }
  JsonValue page = document;
  page["steps"] = std::move(kept);
  page["steps_each"] = static_cast<int64_t>(each);
  return page;
}

void AddPictures(const RunRecord& record, const RunSetup& setup, int32_t step,
                 Document* doc) {
  const StepDetail detail = ComputeStepDetail(record, setup, step);
  const int32_t rank = detail.ranks.empty() ? 0 : detail.ranks.front().rank;
  doc->Set("states", ListOf(record.states().all()));
  doc->Set("chunk_list", ChunksJson(record, setup, rank, detail.step));
  doc->Set("detail", StepDetailJson(detail));
  doc->Set("unread_documents", ListOf(setup.unread));
}

}  // namespace castor
