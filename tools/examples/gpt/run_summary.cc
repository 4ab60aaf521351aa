// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/run_summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "chunk/base/units_text.h"
#include "offload/pinned_arena.h"
#include "offload/simulated_link.h"
#include "placement/run_event.h"
#include "tools/examples/gpt/run_totals.h"

namespace castor::gpt {
namespace {

// How many steps a mean at an end covers.
constexpr size_t kEndSteps = StepHistory::kFirst;

double MeanLoss(std::span<const StepReport> steps) {
  double sum = 0;
  for (const StepReport& step : steps) sum += step.loss;
  return steps.empty() ? 0 : sum / static_cast<double>(steps.size());
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

std::string LinkText(const char* name, const LinkUse& link) {
  return fmt::format("  {:<18}{:>12} in {} copies, {:.2f} s of the wire\n",
                     name, FormatSize(link.bytes), link.transfers,
                     BusySeconds(link));
}

// Where states live, where the user had a say in it.
std::string HomesText(const TrainOptions& options,
                      const TrainOutcome& outcome) {
  if (!options.engine.home_limits && options.engine.home_rules.empty())
    return "";
  const EngineStats& stats = outcome.ranks.front();
  std::string text = "homes on a rank, by state:\n";
  for (size_t k = 0; k < kStateKinds; ++k) {
    std::string tiers;
    for (Tier tier : kAllTiers) {
      const Bytes bytes = stats.state_bytes[k][TierIndex(tier)];
      if (bytes == Bytes(0)) continue;
      tiers += fmt::format("  {} {}", TierName(tier), FormatSize(bytes));
    }
    if (tiers.empty()) continue;
    text += fmt::format("  {:<10}{}\n",
                        StateKindName(static_cast<StateKind>(k)), tiers);
  }
  constexpr size_t kMostShown = 5;
  const std::vector<std::string>& placed = outcome.placed_by_rules;
  for (size_t i = 0; i < std::min(placed.size(), kMostShown); ++i) {
    text += fmt::format("  {}\n", placed[i]);
  }
  if (placed.size() > kMostShown) {
    text += fmt::format("  and {} more by rules: --json\n",
                        placed.size() - kMostShown);
  }
  return text;
}

// Budgets bound what Castor holds, and a process holds more.
std::string MemoryText(const ProcessMemory& memory) {
  if (memory.peak == Bytes(0)) return "";
  std::string text = "memory of this process at its peak:\n";
  const auto add = [&](std::string_view what, Bytes bytes) {
    if (bytes == Bytes(0)) return;
    text += fmt::format("  {:<26}{:>12}\n", what, FormatSize(bytes));
  };
  add("Castor's tiers", memory.tiers);
  add("activations", memory.activations);
  add("conversions to fp32", memory.conversions);
  add("the text", memory.text);
  add("the record", memory.record);
  add("program, libraries, BLAS", memory.rest());
  add("in all", memory.peak);
  return text;
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
  text += MemoryText(outcome.memory);
  text += HomesText(options, outcome);
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
  if (options.engine.clip_norm > 0) {
    line += fmt::format("  norm {:.3g}", report.grad_norm);
  }
  if (options.engine.loss_scaling.kind == LossScalingKind::kDynamic) {
    line += fmt::format("  scale {:g}", report.loss_scale);
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
      TokensPerSecond(outcome.steps.tokens(), outcome.seconds));
  if (!outcome.ranks.empty()) text += CastorText(options, outcome);
  if (!outcome.trace_file.empty()) {
    text += fmt::format(
        "trace of the last step: {}, {} moments, {} chunks, {} parameters\n",
        outcome.trace_file, outcome.trace.step.accesses.size(),
        outcome.trace.chunks.size(), outcome.trace.params.size());
  }
  if (!outcome.checkpoint.empty()) {
    text += fmt::format("checkpoint: {}\n", outcome.checkpoint);
  }
  const size_t end = outcome.steps.first().size();
  text += fmt::format(
      "mean loss of the first {0} steps {1:.4f}, of the last "
      "{0} {2:.4f}\n",
      end, MeanFirstLoss(outcome.steps.first()),
      MeanLastLoss(outcome.steps.last()));
  for (const auto& [step, digest] : outcome.digests) {
    text += fmt::format("weight digest after step {}: {}\n", step, Hex(digest));
  }
  text += fmt::format("weight digest: {}\n", Hex(outcome.final_digest));
  return text;
}

}  // namespace castor::gpt
