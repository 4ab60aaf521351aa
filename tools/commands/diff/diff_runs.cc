// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "chunk/base/tier.h"
#include "placement/run_event.h"
#include "tools/commands/diff/diff.h"
#include "tools/report/run_statistics.h"

namespace castor {
namespace {

DiffSide Counts(const RunStatistics& run) {
  return {{"ranks", run.world},
          {"stage", run.stage},
          {"chunks", run.chunks},
          {"complete steps", run.complete_steps},
          {"chunks made whole", run.copies},
          {"of them ahead of use", run.prefetched_copies},
          {"steps that departed", run.divergences}};
}

DiffSide Times(const RunStatistics& run) {
  return {{"a step", Value::Ns(run.step_ns.median)},
          {"of it stalled", Value::Ns(run.stalled_ns.median)}};
}

DiffSide Peaks(const RunStatistics& run) {
  DiffSide side;
  for (const TierStatistics& tier : run.tiers) {
    const std::string name(TierName(tier.tier));
    side.emplace_back(name + " peak", Bytes(tier.peak_bytes));
    side.emplace_back(name + " budget", Bytes(tier.budget_bytes));
  }
  return side;
}

DiffSide Links(const RunStatistics& run) {
  DiffSide side;
  for (size_t i = 0; i < run.links.size(); ++i) {
    side.emplace_back(LinkName(run.links[i].link),
                      Bytes(run.link_bytes[i].median));
  }
  return side;
}

DiffSide Stalls(const RunStatistics& run) {
  const int64_t steps = std::max<int64_t>(std::ssize(run.steps), 1);
  DiffSide side;
  for (const StallStatistics& stall : run.stalls) {
    side.emplace_back(RunCauseName(stall.cause), Value::Ns(stall.ns / steps));
  }
  return side;
}

// Where transfers of a state begin and end: what crosses the drive's link lives
// there, what the optimizer fetches from the device, there. Without transfers
// it is not known, but for parameters, which are gathered from the device then.
using StatesByChunk = std::map<std::pair<int32_t, StateKind>, Tier>;

StatesByChunk HomesOf(const RunRecord& record) {
  StatesByChunk homes;
  for (const RunEvent& event : record.events) {
    if (event.chunk < 0) continue;
    const std::pair key(event.chunk, event.state);
    if (event.kind == RunEventKind::kGather) {
      homes.try_emplace(key, Tier::kDevice);
      continue;
    }
    if (event.kind != RunEventKind::kTransfer) continue;
    Tier home = Tier::kHost;
    if (event.from == Tier::kNvme || event.to == Tier::kNvme) {
      home = Tier::kNvme;
    } else if (event.cause == RunCause::kOptimizer || event.from == event.to) {
      home = Tier::kDevice;
    }
    Tier& known = homes.try_emplace(key, home).first->second;
    // The host is on the way between the others.
    const bool of_drive = known == Tier::kNvme || home == Tier::kNvme;
    if (of_drive) {
      known = Tier::kNvme;
    } else if (event.cause == RunCause::kOptimizer) {
      known = Tier::kDevice;
    } else if (event.state == StateKind::kParam) {
      known = Tier::kHost;
    }
  }
  return homes;
}

bool SameChunks(const RunRecord& a, const RunRecord& b) {
  if (a.ranks.empty() || b.ranks.empty()) return false;
  const auto& first = a.ranks.front().chunks;
  const auto& second = b.ranks.front().chunks;
  return std::equal(first.begin(), first.end(), second.begin(), second.end(),
                    [](const RunChunkInfo& x, const RunChunkInfo& y) {
                      return x.bytes == y.bytes && x.params == y.params;
                    });
}

// Only what both show, and differs.
DiffSection ChangedHomes(const RunRecord& a, const RunRecord& b) {
  DiffSection section{"homes", {}};
  if (!SameChunks(a, b)) return section;
  const StatesByChunk first = HomesOf(a);
  const StatesByChunk second = HomesOf(b);
  for (const auto& [key, home] : first) {
    const auto other = second.find(key);
    if (other == second.end() || other->second == home) continue;
    section.rows.push_back(
        {fmt::format("chunk {} {}", key.first, StateKindName(key.second)),
         TierName(home), TierName(other->second)});
  }
  return section;
}

}  // namespace

std::vector<DiffSection> DiffRuns(const RunRecord& a, const RunRecord& b,
                                  const StepRange& steps) {
  const RunStatistics first = ComputeRunStatistics(a, steps);
  const RunStatistics second = ComputeRunStatistics(b, steps);
  std::vector<DiffSection> sections = {
      Compare("run", Counts(first), Counts(second)),
      Compare("time", Times(first), Times(second)),
      Compare("tiers", Peaks(first), Peaks(second), Bytes(0)),
      Compare("links", Links(first), Links(second), Bytes(0)),
      Compare("stalls", Stalls(first), Stalls(second), Value::Ns(0)),
      ChangedHomes(a, b)};
  std::erase_if(sections, [](const DiffSection& s) { return s.rows.empty(); });
  return sections;
}

}  // namespace castor
