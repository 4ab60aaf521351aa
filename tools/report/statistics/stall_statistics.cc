// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "collectives/sealing/run_chunks.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {
namespace {

// Below this share of the waiting, the busiest link does not explain it.
constexpr double kExplains = 0.5;

struct Waits {
  int64_t count = 0;
  std::map<int32_t, std::vector<Interval>> by_rank;
  std::vector<Interval> in_first_step;
  std::map<int32_t, ChunkStall> by_chunk;
};

std::string ParamsOf(const RunRecord& record, int32_t chunk) {
  if (record.ranks.empty()) return "";
  const std::vector<RunChunkInfo>& chunks = record.ranks.front().chunks;
  const auto index = static_cast<size_t>(chunk);
  return chunk >= 0 && index < chunks.size() ? FewNames(chunks[index].params)
                                             : "";
}

std::vector<ChunkStall> Worst(const RunRecord& record, Waits* waits,
                              int worst_chunks) {
  std::vector<ChunkStall> worst;
  for (auto& [chunk, stall] : waits->by_chunk) {
    if (chunk >= 0) worst.push_back(std::move(stall));
  }
  std::sort(worst.begin(), worst.end(),
            [](const ChunkStall& a, const ChunkStall& b) {
              return a.ns != b.ns ? a.ns > b.ns : a.chunk < b.chunk;
            });
  const auto most = static_cast<size_t>(worst_chunks);
  if (worst.size() > most) worst.resize(most);
  for (ChunkStall& stall : worst) {
    stall.params = ParamsOf(record, stall.chunk);
  }
  return worst;
}

void FindBusiest(const std::map<int32_t, IntervalSet>& waits,
                 std::span<const LinkStatistics> links,
                 StallStatistics* stall) {
  for (const LinkStatistics& link : links) {
    int64_t busy_ns = 0;
    for (const auto& [rank, set] : waits) {
      const auto busy = link.busy.find(rank);
      if (busy == link.busy.end()) continue;
      busy_ns += Length(Intersection(set, busy->second));
    }
    const double share = stall->ns == 0 ? 0
                                        : static_cast<double>(busy_ns) /
                                              static_cast<double>(stall->ns);
    if (share > stall->busiest_share) {
      stall->busiest_share = share;
      stall->busiest = link.link;
    }
  }
}

// What would relieve a link that was at work while lanes waited.
std::string_view Relief(const LinkId& link) {
  if (link.kind == RunEventKind::kGather) {
    return "it waits for the slowest rank too; try a larger --chunk, or more "
           "work per step (--batch)";
  }
  if (link.kind == RunEventKind::kReduceScatter) {
    return "it waits for the slowest rank too; try a larger --chunk, or fewer "
           "ranks";
  }
  if (link.from == Tier::kNvme || link.to == Tier::kNvme) {
    return "raise --host-budget, so that less lives on NVMe, or give it a "
           "faster drive";
  }
  return "raise --device-budget, so that more stays there, or do more work "
         "per step (--batch)";
}

}  // namespace

std::vector<StallStatistics> ComputeStallStatistics(
    const RunRecord& record, std::span<const LinkStatistics> links,
    const StepRange& steps, int worst_chunks) {
  std::array<Waits, kRunCauses> causes;
  for (const RunEvent& event : record.events) {
    if (event.kind != RunEventKind::kStall || !steps.Holds(event.step)) {
      continue;
    }
    Waits& waits = causes[static_cast<size_t>(event.cause)];
    const Interval time = {event.begin_ns, event.end_ns};
    ++waits.count;
    waits.by_rank[event.rank].push_back(time);
    if (event.step == 1) waits.in_first_step.push_back(time);
    ChunkStall& chunk = waits.by_chunk[event.chunk];
    chunk.chunk = event.chunk;
    chunk.ns += time.length();
    ++chunk.count;
  }

  std::vector<StallStatistics> stalls;
  for (size_t i = 0; i < causes.size(); ++i) {
    Waits& waits = causes[i];
    if (waits.count == 0) continue;
    StallStatistics stall;
    stall.cause = static_cast<RunCause>(i);
    stall.count = waits.count;
    std::map<int32_t, IntervalSet> sets;
    for (auto& [rank, intervals] : waits.by_rank) {
      sets[rank] = Union(std::move(intervals));
      stall.ns += Length(sets[rank]);
    }
    for (const Interval& time : waits.in_first_step) {
      stall.first_step_ns += time.length();
    }
    stall.worst = Worst(record, &waits, worst_chunks);
    FindBusiest(sets, links, &stall);
    stalls.push_back(std::move(stall));
  }
  std::sort(stalls.begin(), stalls.end(),
            [](const StallStatistics& a, const StallStatistics& b) {
              return a.ns != b.ns ? a.ns > b.ns : a.cause < b.cause;
            });
  return stalls;
}

std::string_view WaitTitle(RunCause cause) {
  switch (cause) {
    case RunCause::kDemand:
      return "chunks fetched when asked for";
    case RunCause::kPrefetch:
      return "chunks fetched ahead, too late";
    case RunCause::kOptimizer:
      return "parameters still being updated";
    case RunCause::kGradient:
      return "a slot for gradients";
    default:
      return RunCauseName(cause);
  }
}

std::string StallHint(const StallStatistics& stall, int64_t divergences,
                      int32_t last_step, bool relief) {
  if (stall.cause == RunCause::kDemand && last_step > 1 &&
      2 * stall.first_step_ns > stall.ns) {
    return fmt::format(
        "mostly in step 1, which records what later steps fetch ahead: look "
        "at them with --steps 2-{}",
        last_step);
  }
  if (stall.cause == RunCause::kDemand && divergences > 0) {
    return fmt::format(
        "{} steps departed from the recorded one, and what comes then is not "
        "fetched ahead: use parameters in the same order in every step",
        divergences);
  }
  const auto with = [&](std::string fact, std::string_view helps) {
    return relief ? fmt::format("{}: {}", fact, helps) : fact;
  };
  if (stall.cause == RunCause::kGradient) {
    return with("no slot was free for a gradient",
                "raise --device-budget, or use a smaller --chunk");
  }
  if (stall.busiest.has_value() && stall.busiest_share >= kExplains) {
    return with(
        fmt::format("{} was busy {:.0f} % of that time",
                    LinkName(*stall.busiest), 100 * stall.busiest_share),
        Relief(*stall.busiest));
  }
  if (stall.cause == RunCause::kOptimizer) {
    return with(
        "the update of these chunks was not done when they were needed again",
        "more cores per rank would help");
  }
  if (stall.cause == RunCause::kDemand || stall.cause == RunCause::kPrefetch) {
    return with("no link was busy for most of it, so fetches start late",
                "raise --device-budget, or use a smaller --chunk, so that "
                "there are slots to fetch ahead");
  }
  return "";
}

}  // namespace castor
