// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/report_data.h"

#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <utility>

#include "chunk/base/quote.h"
#include "placement/run_event.h"
#include "tools/report/plan_statistics.h"

namespace castor {
namespace {

JsonValue SpreadJson(const Spread& spread) {
  return JsonValue::Object({{"min", spread.min},
                            {"median", spread.median},
                            {"max", spread.max},
                            {"max_step", spread.max_step}});
}

JsonValue RecordJson(std::string_view name, const RunStatistics& run,
                     const Status& completeness) {
  JsonValue record =
      JsonValue::Object({{"file", name}, {"complete", completeness.ok()}});
  if (!completeness.ok()) record["reason"] = completeness.message();
  record["file_bytes"] = run.file_bytes;
  record["events"] = run.events;
  record["dropped_events"] = run.dropped;
  record["ranks"] = run.ranks.size();
  record["world"] = run.world;
  record["stage"] = run.stage >= 0 ? JsonValue(run.stage) : JsonValue();
  record["chunks"] = run.chunks;
  record["chunk_bytes"] = run.chunk_bytes;
  return record;
}

JsonValue StepsJson(const RunStatistics& run) {
  JsonValue steps = JsonValue::Array();
  for (const StepStatistics& step : run.steps) {
    JsonValue bytes = JsonValue::Object();
    for (size_t i = 0; i < run.links.size(); ++i) {
      bytes[LinkName(run.links[i].link)] = step.link_bytes[i];
    }
    steps.Append(JsonValue::Object({{"step", step.step},
                                    {"complete", step.complete},
                                    {"time_ns", step.ns},
                                    {"stalled_ns", step.stalled_ns},
                                    {"link_bytes", std::move(bytes)}}));
  }
  return steps;
}

JsonValue RankJson(const RankStatistics& rank) {
  return JsonValue::Object({{"rank", rank.rank},
                            {"steps_ns", rank.step_ns},
                            {"stalled_ns", rank.stalled_ns},
                            {"updating_ns", rank.updating_ns},
                            {"moving_ns", rank.moving_ns},
                            {"unhidden_ns", rank.unhidden_ns}});
}

JsonValue TierJson(const TierStatistics& tier) {
  JsonValue over_step = JsonValue::Array();
  for (const double bytes : tier.over_step) {
    over_step.Append(static_cast<int64_t>(bytes));
  }
  return JsonValue::Object(
      {{"tier", TierName(tier.tier)},
       {"peak_bytes", tier.peak_bytes},
       {"peak_rank", tier.peak_rank},
       {"peak_step", tier.peak_step},
       {"budget_bytes",
        tier.budget_bytes > 0 ? JsonValue(tier.budget_bytes) : JsonValue()},
       {"over_step_bytes", std::move(over_step)}});
}

JsonValue ArenaJson(const RunArenaInfo& arena) {
  return JsonValue::Object({{"name", arena.name},
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
}

JsonValue LinkJson(const LinkStatistics& link, int64_t unhidden_ns,
                   const Spread& spread) {
  JsonValue causes = JsonValue::Object();
  for (size_t i = 0; i < link.bytes_by_cause.size(); ++i) {
    if (link.bytes_by_cause[i] == 0) continue;
    causes[RunCauseName(static_cast<RunCause>(i))] = link.bytes_by_cause[i];
  }
  JsonValue over_step = JsonValue::Array();
  for (const double share : link.over_step) over_step.Append(share);
  return JsonValue::Object(
      {{"link", LinkName(link.link)},
       {"moves", link.count},
       {"moved_bytes", link.bytes},
       {"moved_bytes_by_cause", std::move(causes)},
       {"step_bytes", SpreadJson(spread)},
       {"outside_bytes", link.outside_bytes},
       {"busy_ns", link.busy_ns},
       {"unhidden_ns", unhidden_ns},
       {"busy_share", link.busy_share},
       {"gigabytes_per_second", link.gigabytes_per_second()},
       {"over_step_busy_share", std::move(over_step)}});
}

JsonValue StallJson(const StallStatistics& stall, const RunStatistics& run) {
  JsonValue chunks = JsonValue::Array();
  for (const ChunkStall& chunk : stall.worst) {
    chunks.Append(JsonValue::Object({{"chunk", chunk.chunk},
                                     {"parameters", chunk.params},
                                     {"count", chunk.count},
                                     {"time_ns", chunk.ns}}));
  }
  JsonValue json = JsonValue::Object({{"cause", RunCauseName(stall.cause)},
                                      {"count", stall.count},
                                      {"time_ns", stall.ns},
                                      {"worst_chunks", std::move(chunks)}});
  if (stall.busiest.has_value()) {
    json["busiest_link"] = LinkName(*stall.busiest);
    json["busiest_share"] = stall.busiest_share;
  }
  if (!run.steps.empty()) {
    json["hint"] = StallHint(stall, run.divergences, run.steps.back().step);
  }
  return json;
}

JsonValue PlanJson(const PlanStatistics& plan) {
  return JsonValue::Object({{"made_after_step", plan.step},
                            {"unit", plan.in_seconds ? "seconds" : "links"},
                            {"moments", plan.moments},
                            {"slots", SlotWorthJson(plan)}});
}

}  // namespace

JsonValue SlotWorthJson(const PlanStatistics& plan) {
  const auto real = [](const std::optional<double>& value) {
    return value ? JsonValue(*value) : JsonValue();
  };
  JsonValue slots = JsonValue::Array();
  for (const SlotWorth& each : plan.slots) {
    JsonValue json =
        JsonValue::Object({{"slot_bytes", each.slot_bytes},
                           {"slots", each.slots},
                           {"shard_slots", each.shard_slots},
                           {"shards", each.shards},
                           {"cost", each.cost},
                           {"lower_bound", each.lower_bound},
                           {"optimal", each.optimal},
                           {"one_more_saves", real(each.one_more_saves)},
                           {"one_less_costs", real(each.one_less_costs)}});
    if (each.dearest_first >= 0) {
      json["dearest_moments"] = JsonValue::Array();
      json["dearest_moments"].Append(each.dearest_first);
      json["dearest_moments"].Append(each.dearest_last);
    }
    slots.Append(std::move(json));
  }
  return slots;
}

JsonValue ReportJson(std::string_view name, const RunStatistics& run,
                     const Status& completeness) {
  JsonValue report =
      JsonValue::Object({{"schema", "castor.report/1"},
                         {"record", RecordJson(name, run, completeness)},
                         {"steps", StepsJson(run)},
                         {"complete_steps", run.complete_steps},
                         {"step_ns", SpreadJson(run.step_ns)},
                         {"step_stalled_ns", SpreadJson(run.stalled_ns)},
                         {"copies", run.copies},
                         {"copies_ahead_of_use", run.prefetched_copies},
                         {"divergences", run.divergences}});
  for (const char* list :
       {"ranks", "tiers", "pinned_arenas", "links", "stalls"}) {
    report[list] = JsonValue::Array();
  }
  report["plan"] = run.plan ? PlanJson(*run.plan) : JsonValue();
  for (const RankStatistics& rank : run.ranks) {
    report["ranks"].Append(RankJson(rank));
  }
  for (const TierStatistics& tier : run.tiers) {
    report["tiers"].Append(TierJson(tier));
  }
  for (const RunArenaInfo& arena : run.arenas) {
    report["pinned_arenas"].Append(ArenaJson(arena));
  }
  for (size_t i = 0; i < run.links.size(); ++i) {
    report["links"].Append(
        LinkJson(run.links[i], run.link_unhidden_ns[i], run.link_bytes[i]));
  }
  for (const StallStatistics& stall : run.stalls) {
    report["stalls"].Append(StallJson(stall, run));
  }
  return report;
}

std::string ReportPlain(std::string_view name, const RunStatistics& run,
                        const Status& completeness) {
  std::string out;
  const auto line = [&out](std::string_view what, auto&&... fields) {
    out += what;
    (fmt::format_to(std::back_inserter(out), "\t{}", fields), ...);
    out += '\n';
  };
  line("record", "file", name);
  line("record", "complete", completeness.ok() ? "yes" : "no");
  line("record", "file_bytes", run.file_bytes);
  line("record", "events", run.events);
  line("record", "dropped_events", run.dropped);
  line("record", "ranks", run.ranks.size());
  line("record", "world", run.world);
  line("record", "stage", run.stage);
  line("record", "chunks", run.chunks);
  line("record", "chunk_bytes", run.chunk_bytes);
  line("record", "copies", run.copies);
  line("record", "copies_ahead_of_use", run.prefetched_copies);
  line("record", "divergences", run.divergences);
  for (const StepStatistics& step : run.steps) {
    line("step", step.step, step.complete ? "complete" : "partial", step.ns,
         step.stalled_ns);
  }
  for (const TierStatistics& tier : run.tiers) {
    line("tier", TierName(tier.tier), tier.peak_bytes, tier.budget_bytes,
         tier.peak_rank, tier.peak_step);
  }
  for (const RunArenaInfo& arena : run.arenas) {
    line("arena", Quoted(arena.name), arena.rank, Quoted(arena.allocator),
         arena.peak_bytes, arena.budget_bytes, arena.live_bytes,
         arena.active_bytes, arena.resident_bytes, arena.retained_bytes,
         arena.allocated, arena.refused);
  }
  if (run.plan) {
    for (const SlotWorth& each : run.plan->slots) {
      line("slots", each.slot_bytes, each.slots,
           run.plan->in_seconds ? "seconds" : "links", each.cost,
           each.lower_bound, each.one_more_saves.value_or(-1),
           each.one_less_costs.value_or(-1));
    }
  }
  for (const LinkStatistics& link : run.links) {
    line("link", LinkName(link.link), link.count, link.bytes, link.busy_ns,
         link.outside_bytes);
  }
  for (const StallStatistics& stall : run.stalls) {
    line("stall", RunCauseName(stall.cause), stall.count, stall.ns);
    for (const ChunkStall& chunk : stall.worst) {
      line("chunk", RunCauseName(stall.cause), chunk.chunk, chunk.count,
           chunk.ns, Quoted(chunk.params));
    }
  }
  return out;
}

}  // namespace castor
