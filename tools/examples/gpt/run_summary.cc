// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "chunk/text/units_text.h"
#include "offload/nvme/nvme_option.h"
#include "placement/run_event.h"
#include "placement/trace/trace_file.h"
#include "tools/examples/gpt/model/gpt_params.h"

namespace castor::gpt {
namespace {

// Of all ranks. Of one tier, the largest; of everything else, the sum.
EngineStats Combined(std::span<const EngineStats> ranks) {
  EngineStats all = ranks.front();
  for (const EngineStats& rank : ranks.subspan(1)) {
    for (Tier tier : kAllTiers) {
      TierUse& use = all.tiers[TierIndex(tier)];
      const TierUse& other = rank.tiers[TierIndex(tier)];
      use.budget = std::max(use.budget, other.budget);
      use.peak = std::max(use.peak, other.peak);
      for (Tier to : kAllTiers) {
        all.moved[TierIndex(tier)][TierIndex(to)] +=
            rank.moved[TierIndex(tier)][TierIndex(to)];
      }
    }
    all.most_nvme_written += rank.most_nvme_written;
    all.wire_sent += rank.wire_sent;
    for (const auto count :
         {&EngineStats::gathers, &EngineStats::prefetched_gathers,
          &EngineStats::reduce_scatters, &EngineStats::divergences,
          &EngineStats::stall_ns, &EngineStats::stalls}) {
      all.*count += rank.*count;
    }
  }
  return all;
}

// Of the last `count` steps.
double MeanLoss(const auto& steps, size_t count) {
  double sum = 0;
  for (size_t i = steps.size() - count; i < steps.size(); ++i) {
    sum += steps[i].loss;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

std::string Hex(uint64_t digest) { return fmt::format("{:016x}", digest); }

double TokensPerSecond(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

// A drive given without a size holds whatever budgets do not.
bool HasLimit(const TrainOptions& options, Tier tier) {
  return tier != Tier::kNvme || (!options.engine.nvme.empty() &&
                                 NvmeLimit(options.engine.nvme).has_value());
}

// A document and the same for people, made side by side.
struct Summary {
  std::string text;
  JsonValue json = JsonValue::Object();

  void Line(std::string_view line) { text += fmt::format("{}\n", line); }
  // Below a line: what, and how much of it.
  void Row(std::string_view what, std::string_view how_much) {
    text += fmt::format("  {:<26}{:>12}\n", what, how_much);
  }
};

void AddModel(const TrainOptions& options, const TrainOutcome& outcome,
              Summary* to) {
  const int64_t parameters = GptParams(options.model).elements();
  const double seconds = outcome.steps.seconds();
  const double speed = TokensPerSecond(outcome.steps.tokens(), seconds);
  to->Line(fmt::format(
      "{} parameters in {}, {} of {} steps of {} x {} x {} x {} tokens (ranks, "
      "micro-batches, sequences, length) in {:.1f} s: {:.0f} tokens/s",
      parameters, DTypeName(options.dtype), outcome.steps.size(), options.steps,
      options.ranks, options.accumulate, options.batch, options.model.context,
      seconds, speed));
  to->json["schema"] = "castor.train.1";
  to->json["model"] = JsonValue::Object({{"parameters", parameters},
                                         {"layers", options.model.layers},
                                         {"heads", options.model.heads},
                                         {"embd", options.model.embd},
                                         {"dtype", DTypeName(options.dtype)}});
  to->json["ranks"] = options.ranks;
  to->json["accumulate"] = options.accumulate;
  to->json["batch"] = options.batch;
  to->json["seq"] = options.model.context;
  to->json["stage"] = options.engine.stage;
  to->json["first_step"] = options.first_step;
  to->json["steps_wanted"] = options.steps;
  to->json["steps"] = outcome.steps.size();
  to->json["stopped_early"] = outcome.stopped_early;
  to->json["steps_without_finite_loss"] = outcome.steps_without_loss;
  to->json["seconds"] = seconds;
  to->json["tokens_per_second"] = speed;
}

void AddTiers(const TrainOptions& options, const TrainOutcome& outcome,
              const EngineStats& all, Summary* to) {
  const EngineStats& first = outcome.ranks.front();
  to->Line(fmt::format("chunks: {} of {}{}, {} gathered at a time",
                       first.chunks, first.chunk_sizes > 1 ? "up to " : "",
                       FormatSize(first.chunk_bytes), first.gathered_slots));
  to->json["chunks"] = first.chunks;
  to->json["chunk_sizes"] = first.chunk_sizes;
  to->json["chunk_bytes"] = first.chunk_bytes.count();
  to->json["gathered_slots"] = first.gathered_slots;
  to->Line("memory of a rank, peak of budget:");
  JsonValue& tiers = to->json["tiers"];
  for (Tier tier : kAllTiers) {
    const TierUse& use = all.tiers[TierIndex(tier)];
    const bool limited = HasLimit(options, tier);
    JsonValue& told = tiers[TierName(tier)] = JsonValue::Object(
        {{"budget_bytes", nullptr},
         {"peak_bytes", use.peak.count()},
         {"home_bytes", first.home_bytes[TierIndex(tier)].count()}});
    if (limited) told["budget_bytes"] = use.budget.count();
    if (use.budget == Bytes(0)) continue;
    to->Row(TierName(tier),
            fmt::format("{} of {}", FormatSize(use.peak),
                        limited ? FormatSize(use.budget) : "what is needed"));
  }
}

// Budgets bound what Castor holds, and a process holds more.
void AddMemory(const ProcessMemory& memory, Summary* to) {
  const bool known = memory.peak > Bytes(0);
  if (known) to->Line("memory of this process at its peak:");
  JsonValue& json = to->json["process_memory"];
  const auto part = [&](const char* key, const char* what, Bytes bytes) {
    json[key] = bytes.count();
    if (known && bytes > Bytes(0)) to->Row(what, FormatSize(bytes));
  };
  part("tiers_bytes", "Castor's tiers", memory.tiers);
  part("activations_bytes", "activations", memory.activations);
  part("conversions_bytes", "conversions to fp32", memory.conversions);
  part("text_bytes", "the text", memory.text);
  part("record_bytes", "the record", memory.record);
  part("rest_bytes", "program, libraries, BLAS", memory.rest());
  part("peak_bytes", "in all", memory.peak);
}

// Where states live; said to people where the user had a say in it.
void AddHomes(const TrainOptions& options, const TrainOutcome& outcome,
              Summary* to) {
  const EngineStats& stats = outcome.ranks.front();
  const bool asked =
      options.engine.home_limits || !options.engine.home_rules.empty();
  if (asked) to->Line("homes on a rank, by state:");
  JsonValue& homes = to->json["homes"];
  const StateNames names = StateNamesOf(options.engine.optimizer);
  size_t width = 10;
  for (const auto& name : names.all()) width = std::max(width, name.size());
  for (size_t k = 0; k < static_cast<size_t>(names.states()); ++k) {
    const std::string_view state = names.of(static_cast<StateKind>(k));
    std::string where;
    JsonValue& tiers = homes[state];
    for (Tier tier : kAllTiers) {
      const Bytes bytes = stats.state_bytes[k][TierIndex(tier)];
      tiers[fmt::format("{}_bytes", TierName(tier))] = bytes.count();
      if (bytes == Bytes(0)) continue;
      where += fmt::format("  {} {}", TierName(tier), FormatSize(bytes));
    }
    if (asked && !where.empty())
      to->Line(fmt::format("  {:<{}}{}", state, width, where));
  }
  if (options.engine.home_rules.empty()) return;
  constexpr size_t kMostShown = 5;
  JsonValue& rules = to->json["placed_by_rules"] = JsonValue::Array();
  for (const std::string& placed : outcome.placed_by_rules) {
    rules.Append(placed);
    if (rules.size() <= kMostShown) to->Line("  " + placed);
  }
  if (rules.size() > kMostShown) {
    to->Line(fmt::format("  and {} more by rules: --json",
                         rules.size() - kMostShown));
  }
}

void AddBatches(const PinnedArenaStats& arena, Summary* to) {
  to->json["pinned_batches"] =
      JsonValue::Object({{"allocator", arena.allocator},
                         {"locked", arena.slab.locked},
                         {"buffers", arena.buffers},
                         {"requested_bytes", arena.requested.count()},
                         {"peak_bytes", arena.peak.count()},
                         {"budget_bytes", arena.budget.count()},
                         {"live_bytes", arena.live.count()},
                         {"active_bytes", arena.active.count()},
                         {"resident_bytes", arena.resident.count()}});
  to->Line(
      fmt::format("pinned batches ({}{}): {} buffers of {}, "
                  "peak {} of {}",
                  arena.allocator, arena.slab.locked ? "" : ", not locked",
                  arena.buffers, FormatSize(arena.requested),
                  FormatSize(arena.peak), FormatSize(arena.budget)));
}

void AddMoved(const EngineStats& all, Summary* to) {
  to->Line("moved by all ranks:");
  JsonValue& moved = to->json["moved"] = JsonValue::Array();
  for (Tier from : kAllTiers) {
    for (Tier into : kAllTiers) {
      const Bytes bytes = all.moved[TierIndex(from)][TierIndex(into)];
      if (bytes == Bytes(0)) continue;
      to->Row(fmt::format("{} to {}", TierName(from), TierName(into)),
              FormatSize(bytes));
      moved.Append(JsonValue::Object({{"from", TierName(from)},
                                      {"to", TierName(into)},
                                      {"moved_bytes", bytes.count()}}));
    }
  }
  to->Row("between ranks", FormatSize(all.wire_sent));
  to->json["sent_bytes"] = all.wire_sent.count();
  to->json["most_nvme_written_bytes"] = all.most_nvme_written.count();
  if (all.most_nvme_written > Bytes(0)) {
    to->Line(fmt::format("written to nvme in a step: at most {}",
                         FormatSize(all.most_nvme_written)));
  }
}

void AddLinks(const TrainOptions& options, const TrainOutcome& outcome,
              Summary* to) {
  if (outcome.links.empty()) return;
  const TierModel machine = options.machine.value_or(TierModel());
  to->Line("links of all ranks, as fast as the machine given:");
  JsonValue& json = to->json["links"];
  const auto link = [&](const char* key, const char* what,
                        LinkUse RankLinks::*use,
                        const std::optional<LinkModel>& model) {
    LinkUse all;
    for (const RankLinks& rank : outcome.links) {
      all.transfers += (rank.*use).transfers;
      all.bytes += (rank.*use).bytes;
      all.busy_ns += (rank.*use).busy_ns;
    }
    const double busy = static_cast<double>(all.busy_ns) * 1e-9;
    json[key] = JsonValue::Object({{"copies", all.transfers},
                                   {"copied_bytes", all.bytes.count()},
                                   {"busy_seconds", busy},
                                   {"bytes_per_second", nullptr}});
    if (model) json[key]["bytes_per_second"] = model->bytes_per_second;
    if (all.transfers == 0) return;
    to->Row(what, fmt::format("{} in {} copies, {:.2f} s of the wire",
                              FormatSize(all.bytes), all.transfers, busy));
  };
  link("host_to_device", "host to device", &RankLinks::to_device,
       machine.host_to_device);
  link("device_to_host", "device to host", &RankLinks::from_device,
       machine.device_to_host);
  link("nvme_read", "nvme to host", &RankLinks::nvme_read, machine.nvme_read);
  link("nvme_write", "host to nvme", &RankLinks::nvme_write,
       machine.nvme_write);
}

void AddStalls(const TrainOptions& options, const TrainOutcome& outcome,
               const EngineStats& all, Summary* to) {
  to->Line(fmt::format(
      "gathers: {}, of them {} ahead of use; reduce-scatters: {}; departures "
      "from the trace: {}",
      all.gathers, all.prefetched_gathers, all.reduce_scatters,
      all.divergences));
  to->json["gathers"] = all.gathers;
  to->json["prefetched_gathers"] = all.prefetched_gathers;
  to->json["reduce_scatters"] = all.reduce_scatters;
  to->json["divergences"] = all.divergences;
  const double stalled = static_cast<double>(all.stall_ns) * 1e-9;
  const double time = outcome.steps.seconds() * options.ranks;
  const double share = time > 0 ? stalled / time : 0;
  to->Line(fmt::format("stalled: {:.2f} s of {:.2f} s ({:.1f} %), {} times",
                       stalled, time, 100 * share, all.stalls));
  to->json["stalled_seconds"] = stalled;
  to->json["stalled_share"] = share;
  to->json["stalls"] = all.stalls;
}

// What the file holds, for who reads it next.
void AddTrace(const TrainOutcome& outcome, Summary* to) {
  if (outcome.trace_file.empty()) return;
  const TraceFile& trace = outcome.trace;
  Bytes most_leased;
  for (const LeaseChange& change : trace.step.leases) {
    most_leased = std::max(most_leased, change.bytes);
  }
  to->Line(fmt::format(
      "trace of the last step: {}, {} moments, {} chunks, {} parameters",
      outcome.trace_file, trace.step.accesses.size(), trace.chunks.size(),
      trace.params.size()));
  to->json["trace"] =
      JsonValue::Object({{"file", outcome.trace_file},
                         {"schema", kTraceSchema},
                         {"step", outcome.steps.back().step},
                         {"rank", trace.rank},
                         {"world", trace.world},
                         {"chunks", trace.chunks.size()},
                         {"parameters", trace.params.size()},
                         {"accesses", trace.step.accesses.size()},
                         {"most_leased_bytes", most_leased.count()}});
}

void AddResult(const TrainOutcome& outcome, Summary* to) {
  to->json["checkpoint"] = nullptr;
  if (!outcome.checkpoint.empty()) {
    to->Line(fmt::format("checkpoint: {}", outcome.checkpoint));
    to->json["checkpoint"] = outcome.checkpoint;
  }
  const size_t first = outcome.steps.first().size();
  const double begin = MeanLoss(outcome.steps.first(), first);
  const double end = MeanLoss(outcome.steps.last(), first);
  to->Line(fmt::format(
      "mean loss of the first {0} steps {1:.4f}, of the last {0} {2:.4f}",
      first, begin, end));
  to->json["mean_loss_first"] = begin;
  to->json["mean_loss_last"] = end;
  JsonValue losses = JsonValue::Array();
  JsonValue norms = JsonValue::Array();
  for (const StepReport& step : outcome.steps.last()) {
    losses.Append(step.loss);
    norms.Append(step.grad_norm);
  }
  to->json["losses"] = losses;
  to->json["grad_norms"] = norms;
  JsonValue& digests = to->json["digests"] = JsonValue::Object();
  for (const auto& [step, digest] : outcome.digests) {
    to->Line(fmt::format("weight digest after step {}: {}", step, Hex(digest)));
    digests[std::to_string(step)] = Hex(digest);
  }
  to->Line(fmt::format("weight digest: {}", Hex(outcome.final_digest)));
  to->json["weight_digest"] = Hex(outcome.final_digest);
}

Summary SummaryOf(const TrainOptions& options, const TrainOutcome& outcome) {
  const EngineStats all = Combined(outcome.ranks);
  Summary summary;
  AddModel(options, outcome, &summary);
  AddTiers(options, outcome, all, &summary);
  AddMemory(outcome.memory, &summary);
  AddHomes(options, outcome, &summary);
  AddBatches(outcome.arena, &summary);
  AddMoved(all, &summary);
  AddLinks(options, outcome, &summary);
  AddStalls(options, outcome, all, &summary);
  AddTrace(outcome, &summary);
  AddResult(outcome, &summary);
  return summary;
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

std::string SummaryText(const TrainOptions& options,
                        const TrainOutcome& outcome) {
  return SummaryOf(options, outcome).text;
}

JsonValue SummaryJson(const TrainOptions& options,
                      const TrainOutcome& outcome) {
  return SummaryOf(options, outcome).json;
}

}  // namespace castor::gpt
