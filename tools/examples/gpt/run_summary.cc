// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "offload/nvme/nvme_option.h"
#include "offload/pinned_arena.h"
#include "tools/cli/size_text.h"

namespace castor::gpt {
namespace {

constexpr size_t kEndSteps = 5;  // how many steps a mean at an end covers

double MeanLoss(std::span<const StepReport> steps) {
  double sum = 0;
  for (const StepReport& step : steps) sum += step.loss;
  return steps.empty() ? 0 : sum / static_cast<double>(steps.size());
}

double TokensPerSecond(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

int64_t Tokens(const TrainOutcome& outcome) {
  int64_t tokens = 0;
  for (const StepReport& step : outcome.steps) tokens += step.tokens;
  return tokens;
}

std::string Hex(uint64_t digest) { return fmt::format("{:016x}", digest); }

// Of one tier, the largest of all ranks; of everything else, the sum.
EngineStats Combined(const std::vector<EngineStats>& ranks) {
  EngineStats all;
  for (const EngineStats& rank : ranks) {
    for (Tier tier : kAllTiers) {
      TierUse& use = all.tiers[TierIndex(tier)];
      const TierUse& other = rank.tiers[TierIndex(tier)];
      use.budget = std::max(use.budget, other.budget);
      use.peak = std::max(use.peak, other.peak);
      use.in_use = std::max(use.in_use, other.in_use);
      for (Tier to : kAllTiers) {
        all.moved[TierIndex(tier)][TierIndex(to)] +=
            rank.moved[TierIndex(tier)][TierIndex(to)];
      }
    }
    all.most_nvme_written += rank.most_nvme_written;
    all.wire_sent += rank.wire_sent;
    all.gathers += rank.gathers;
    all.prefetched_gathers += rank.prefetched_gathers;
    all.reduce_scatters += rank.reduce_scatters;
    all.divergences += rank.divergences;
    all.stall_ns += rank.stall_ns;
    all.stalls += rank.stalls;
  }
  return all;
}

// Of all ranks. REQUIRES: there is one.
PinnedArenaStats Combined(const std::vector<PinnedArenaStats>& arenas) {
  PinnedArenaStats all;
  all.allocator = arenas.front().allocator;
  all.slab = {.locked = true, .bound = true, .huge_pages = true};
  for (const PinnedArenaStats& arena : arenas) {
    all.slab.locked = all.slab.locked && arena.slab.locked;
    all.slab.bound = all.slab.bound && arena.slab.bound;
    all.budget += arena.budget;
    all.peak += arena.peak;
    all.requested += arena.requested;
    all.buffers += arena.buffers;
    all.refused += arena.refused;
    all.live += arena.live;
    all.active += arena.active;
    all.resident += arena.resident;
    all.retained += arena.retained;
    all.metadata += arena.metadata;
  }
  return all;
}

std::string ArenaText(const PinnedArenaStats& arena) {
  return fmt::format(
      "pinned batches ({}{}): {} buffers of {}, peak {} of {}; live {}, active "
      "{}, resident {}, retained {}\n",
      arena.allocator, arena.slab.locked ? "" : ", not locked", arena.buffers,
      FormatSize(arena.requested), FormatSize(arena.peak),
      FormatSize(arena.budget), FormatSize(arena.live),
      FormatSize(arena.active), FormatSize(arena.resident),
      FormatSize(arena.retained));
}

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

// Of all ranks.
RankLinks Combined(const std::vector<RankLinks>& ranks) {
  RankLinks all;
  for (const RankLinks& rank : ranks) {
    for (const auto link : {&RankLinks::to_device, &RankLinks::from_device,
                            &RankLinks::nvme_read, &RankLinks::nvme_write}) {
      (all.*link).transfers += (rank.*link).transfers;
      (all.*link).bytes += (rank.*link).bytes;
      (all.*link).busy_ns += (rank.*link).busy_ns;
    }
  }
  return all;
}

double BusySeconds(const LinkUse& link) {
  return static_cast<double>(link.busy_ns) * 1e-9;
}

std::string LinkText(const char* name, const LinkUse& link) {
  return fmt::format("  {:<18}{:>12} in {} copies, {:.2f} s of the wire\n",
                     name, FormatSize(link.bytes), link.transfers,
                     BusySeconds(link));
}

JsonValue LinkJson(const LinkUse& link, const std::optional<LinkModel>& model) {
  return JsonValue::Object(
      {{"copies", link.transfers},
       {"copied_bytes", link.bytes.count()},
       {"busy_seconds", BusySeconds(link)},
       {"bytes_per_second",
        model ? JsonValue(model->bytes_per_second) : JsonValue(nullptr)}});
}

double StalledSeconds(const EngineStats& all) {
  return static_cast<double>(all.stall_ns) * 1e-9;
}

// The share of all ranks' time that they waited.
double StalledShare(const TrainOptions& options, const TrainOutcome& outcome,
                    const EngineStats& all) {
  const double time = outcome.seconds * options.ranks;
  return time > 0 ? StalledSeconds(all) / time : 0;
}

// A drive given without a size holds whatever budgets do not.
bool HasLimit(const TrainOptions& options, Tier tier) {
  return tier != Tier::kNvme ||
         (!options.nvme.empty() && NvmeLimit(options.nvme).has_value());
}

std::string CastorText(const TrainOptions& options,
                       const TrainOutcome& outcome) {
  const EngineStats all = Combined(outcome.ranks);
  const EngineStats& first = outcome.ranks.front();
  std::string text =
      fmt::format("chunks: {} of {}{}, {} gathered at a time\n", first.chunks,
                  first.chunk_sizes > 1 ? "up to " : "",
                  FormatSize(first.chunk_bytes), first.gathered_slots);
  text += "memory of a rank, peak of budget:\n";
  for (Tier tier : kAllTiers) {
    const TierUse& use = all.tiers[TierIndex(tier)];
    if (use.budget == Bytes(0)) continue;
    text += fmt::format(
        "  {:<8}{:>12} of {}\n", TierName(tier), FormatSize(use.peak),
        HasLimit(options, tier) ? FormatSize(use.budget) : "what is needed");
  }
  if (!outcome.arenas.empty()) text += ArenaText(Combined(outcome.arenas));
  text += "moved by all ranks:\n";
  for (Tier from : kAllTiers) {
    for (Tier to : kAllTiers) {
      const Bytes moved = all.moved[TierIndex(from)][TierIndex(to)];
      if (moved == Bytes(0)) continue;
      text += fmt::format("  {:<18}{:>12}\n",
                          fmt::format("{} to {}", TierName(from), TierName(to)),
                          FormatSize(moved));
    }
  }
  text += fmt::format("  {:<18}{:>12}\n", "between ranks",
                      FormatSize(all.wire_sent));
  if (!outcome.links.empty()) {
    const RankLinks links = Combined(outcome.links);
    text += "links of all ranks, as fast as the machine given:\n";
    text += LinkText("host to device", links.to_device);
    text += LinkText("device to host", links.from_device);
    if (links.nvme_read.transfers + links.nvme_write.transfers > 0) {
      text += LinkText("nvme to host", links.nvme_read);
      text += LinkText("host to nvme", links.nvme_write);
    }
  }
  if (all.most_nvme_written > Bytes(0)) {
    text += fmt::format("written to nvme in a step: at most {}\n",
                        FormatSize(all.most_nvme_written));
  }
  text += fmt::format(
      "gathers: {}, of them {} ahead of use; reduce-scatters: {}; departures "
      "from the trace: {}\n",
      all.gathers, all.prefetched_gathers, all.reduce_scatters,
      all.divergences);
  text += fmt::format("stalled: {:.2f} s of {:.2f} s ({:.1f} %), {} times\n",
                      StalledSeconds(all), outcome.seconds * options.ranks,
                      100 * StalledShare(options, outcome, all), all.stalls);
  return text;
}

}  // namespace

std::string ProgressLine(const TrainOptions& options,
                         const StepReport& report) {
  std::string line = fmt::format("step {}/{}  loss {:.4f}", report.step,
                                 options.steps, report.loss);
  if (options.clip_norm > 0) {
    line += fmt::format("  norm {:.3g}", report.grad_norm);
  }
  if (!report.applied) line += " (not finite: skipped)";
  line += fmt::format("  {:.0f} tokens/s",
                      TokensPerSecond(report.tokens, report.seconds));
  for (Tier tier : kAllTiers) {
    const TierUse& use = report.tiers[TierIndex(tier)];
    if (use.budget == Bytes(0)) continue;
    line += fmt::format("  {} {}", TierName(tier), FormatSize(use.in_use));
  }
  return line;
}

double MeanFirstLoss(std::span<const StepReport> steps) {
  return MeanLoss(steps.first(std::min(kEndSteps, steps.size())));
}

double MeanLastLoss(std::span<const StepReport> steps) {
  return MeanLoss(steps.last(std::min(kEndSteps, steps.size())));
}

std::string SummaryText(const TrainOptions& options,
                        const TrainOutcome& outcome) {
  std::string text = fmt::format(
      "{} {} parameters in {}, {} of {} steps of {} x {} x {} x {} tokens "
      "(ranks, micro-batches, sequences, length) in {:.1f} s: {:.0f} "
      "tokens/s\n",
      outcome.ranks.empty() ? "reference:" : "castor:",
      GptParams(options.model).elements(), DTypeName(options.dtype),
      outcome.steps.size(), options.steps, options.ranks, options.accumulate,
      options.batch, options.model.context, outcome.seconds,
      TokensPerSecond(Tokens(outcome), outcome.seconds));
  if (!outcome.ranks.empty()) text += CastorText(options, outcome);
  const size_t end = std::min(kEndSteps, outcome.steps.size());
  text += fmt::format(
      "mean loss of the first {0} steps {1:.4f}, of the last "
      "{0} {2:.4f}\n",
      end, MeanFirstLoss(outcome.steps), MeanLastLoss(outcome.steps));
  for (const auto& [step, digest] : outcome.digests) {
    text += fmt::format("weight digest after step {}: {}\n", step, Hex(digest));
  }
  text += fmt::format("weight digest: {}\n", Hex(outcome.final_digest));
  return text;
}

JsonValue SummaryJson(const TrainOptions& options,
                      const TrainOutcome& outcome) {
  JsonValue losses = JsonValue::Array();
  JsonValue norms = JsonValue::Array();
  for (const StepReport& step : outcome.steps) {
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
       {"steps", outcome.steps.size()},
       {"stopped_early", outcome.stopped_early},
       {"seconds", outcome.seconds},
       {"tokens_per_second", TokensPerSecond(Tokens(outcome), outcome.seconds)},
       {"losses", losses},
       {"grad_norms", norms},
       {"mean_loss_first", MeanFirstLoss(outcome.steps)},
       {"mean_loss_last", MeanLastLoss(outcome.steps)},
       {"digests", digests},
       {"weight_digest", Hex(outcome.final_digest)}});
  if (outcome.ranks.empty()) return document;

  const EngineStats all = Combined(outcome.ranks);
  const EngineStats& first = outcome.ranks.front();
  document["stage"] = options.stage;
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
  document["moved"] = moved;
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
