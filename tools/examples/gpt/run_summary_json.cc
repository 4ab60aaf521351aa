// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "placement/run_event.h"
#include "placement/tier_model.h"
#include "placement/trace_file.h"
#include "tools/examples/gpt/gpt_params.h"
#include "tools/examples/gpt/run_summary.h"
#include "tools/examples/gpt/run_totals.h"

namespace castor::gpt {
namespace {

JsonValue ArenaJson(const PinnedArenaStats& arena) {
  return JsonValue::Object({{"allocator", arena.allocator},
                            {"locked", arena.slab.locked},
                            {"bound", arena.slab.bound},
                            {"buffers", arena.buffers},
                            {"refused", arena.refused},
                            {"requested_bytes", arena.requested.count()},
                            {"peak_bytes", arena.peak.count()},
                            {"budget_bytes", arena.budget.count()},
                            {"live_bytes", arena.live.count()},
                            {"active_bytes", arena.active.count()},
                            {"resident_bytes", arena.resident.count()},
                            {"retained_bytes", arena.retained.count()},
                            {"metadata_bytes", arena.metadata.count()}});
}

JsonValue LinkJson(const LinkUse& link, const std::optional<LinkModel>& model) {
  return JsonValue::Object(
      {{"copies", link.transfers},
       {"copied_bytes", link.bytes.count()},
       {"busy_seconds", BusySeconds(link)},
       {"bytes_per_second",
        model ? JsonValue(model->bytes_per_second) : JsonValue(nullptr)}});
}

// Bytes of a rank's slots for states at home.
JsonValue HomesJson(const EngineStats& stats) {
  JsonValue homes = JsonValue::Object();
  for (size_t k = 0; k < kStateKinds; ++k) {
    JsonValue& of_state = homes[StateKindName(static_cast<StateKind>(k))] =
        JsonValue::Object();
    for (Tier tier : kAllTiers) {
      of_state[fmt::format("{}_bytes", TierName(tier))] =
          stats.state_bytes[k][TierIndex(tier)].count();
    }
  }
  return homes;
}

JsonValue MemoryJson(const ProcessMemory& memory) {
  return JsonValue::Object({{"peak_bytes", memory.peak.count()},
                            {"tiers_bytes", memory.tiers.count()},
                            {"activations_bytes", memory.activations.count()},
                            {"conversions_bytes", memory.conversions.count()},
                            {"text_bytes", memory.text.count()},
                            {"record_bytes", memory.record.count()},
                            {"rest_bytes", memory.rest().count()}});
}

// What the file holds, for who reads it next.
JsonValue TraceJson(const TrainOutcome& outcome) {
  const TraceFile& trace = outcome.trace;
  Bytes most_leased;
  for (const LeaseChange& change : trace.step.leases) {
    most_leased = std::max(most_leased, change.bytes);
  }
  return JsonValue::Object({{"file", outcome.trace_file},
                            {"schema", kTraceSchema},
                            {"step", outcome.steps.back().step},
                            {"rank", trace.rank},
                            {"world", trace.world},
                            {"chunks", trace.chunks.size()},
                            {"parameters", trace.params.size()},
                            {"accesses", trace.step.accesses.size()},
                            {"most_leased_bytes", most_leased.count()}});
}

}  // namespace

JsonValue SummaryJson(const TrainOptions& options,
                      const TrainOutcome& outcome) {
  JsonValue losses = JsonValue::Array();
  JsonValue norms = JsonValue::Array();
  for (const StepReport& step : outcome.steps.last()) {
    losses.Append(step.loss);
    norms.Append(step.grad_norm);
  }
  JsonValue digests = JsonValue::Object();
  for (const auto& [step, digest] : outcome.digests) {
    digests[std::to_string(step)] = Hex(digest);
  }
  JsonValue document = JsonValue::Object(
      {{"schema", "castor.train.1"},
       {"reference", outcome.ranks.empty()},
       {"model",
        JsonValue::Object({{"parameters", GptParams(options.model).elements()},
                           {"layers", options.model.layers},
                           {"heads", options.model.heads},
                           {"embd", options.model.embd},
                           {"dtype", DTypeName(options.dtype)}})},
       {"ranks", options.ranks},
       {"accumulate", options.accumulate},
       {"batch", options.batch},
       {"seq", options.model.context},
       {"steps_wanted", options.steps},
       {"first_step", options.first_step},
       {"steps", outcome.steps.size()},
       {"stopped_early", outcome.stopped_early},
       {"steps_without_finite_loss", outcome.steps_without_loss},
       {"seconds", outcome.seconds},
       {"tokens_per_second",
        TokensPerSecond(outcome.steps.tokens(), outcome.seconds)},
       {"losses", losses},
       {"grad_norms", norms},
       {"mean_loss_first", MeanFirstLoss(outcome.steps.first())},
       {"mean_loss_last", MeanLastLoss(outcome.steps.last())},
       {"digests", digests},
       {"weight_digest", Hex(outcome.final_digest)},
       {"checkpoint", outcome.checkpoint.empty()
                          ? JsonValue(nullptr)
                          : JsonValue(outcome.checkpoint)}});
  if (outcome.ranks.empty()) return document;

  const EngineStats all = Combined(outcome.ranks);
  const EngineStats& first = outcome.ranks.front();
  document["stage"] = options.engine.stage;
  document["chunks"] = first.chunks;
  document["chunk_sizes"] = first.chunk_sizes;
  document["chunk_bytes"] = first.chunk_bytes.count();
  document["gathered_slots"] = first.gathered_slots;
  JsonValue tiers = JsonValue::Object();
  JsonValue moved = JsonValue::Array();
  for (Tier tier : kAllTiers) {
    const TierUse& use = all.tiers[TierIndex(tier)];
    tiers[std::string(TierName(tier))] = JsonValue::Object(
        {{"budget_bytes", HasLimit(options, tier)
                              ? JsonValue(use.budget.count())
                              : JsonValue(nullptr)},
         {"peak_bytes", use.peak.count()},
         {"home_bytes", first.home_bytes[TierIndex(tier)].count()}});
    for (Tier to : kAllTiers) {
      const Bytes bytes = all.moved[TierIndex(tier)][TierIndex(to)];
      if (bytes == Bytes(0)) continue;
      moved.Append(JsonValue::Object({{"from", TierName(tier)},
                                      {"to", TierName(to)},
                                      {"moved_bytes", bytes.count()}}));
    }
  }
  document["tiers"] = tiers;
  document["process_memory"] = MemoryJson(outcome.memory);
  document["moved"] = moved;
  document["homes"] = HomesJson(first);
  if (!options.engine.home_rules.empty()) {
    JsonValue placed = JsonValue::Array();
    for (const std::string& each : outcome.placed_by_rules) placed.Append(each);
    document["placed_by_rules"] = placed;
  }
  if (!outcome.arenas.empty()) {
    document["pinned_batches"] = ArenaJson(Combined(outcome.arenas));
  }
  if (!outcome.links.empty()) {
    const RankLinks links = Combined(outcome.links);
    const TierModel machine = options.machine.value_or(TierModel());
    document["links"] = JsonValue::Object(
        {{"host_to_device", LinkJson(links.to_device, machine.host_to_device)},
         {"device_to_host",
          LinkJson(links.from_device, machine.device_to_host)},
         {"nvme_read", LinkJson(links.nvme_read, machine.nvme_read)},
         {"nvme_write", LinkJson(links.nvme_write, machine.nvme_write)}});
  }
  if (!outcome.trace_file.empty()) document["trace"] = TraceJson(outcome);
  document["sent_bytes"] = all.wire_sent.count();
  document["most_nvme_written_bytes"] = all.most_nvme_written.count();
  document["gathers"] = all.gathers;
  document["prefetched_gathers"] = all.prefetched_gathers;
  document["reduce_scatters"] = all.reduce_scatters;
  document["divergences"] = all.divergences;
  document["stalled_seconds"] = StalledSeconds(all);
  document["stalled_share"] = StalledShare(options, outcome, all);
  document["stalls"] = all.stalls;
  return document;
}

}  // namespace castor::gpt
