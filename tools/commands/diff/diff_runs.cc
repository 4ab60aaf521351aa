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

// What one file has, by name, in the order in which it came up.
using Side = std::vector<std::pair<std::string, int64_t>>;
using Compute = void (*)(const RunStatistics&, Side&);

int64_t At(const Side& side, const std::string& what) {
  for (const auto& [name, value] : side) {
    if (name == what) return value;
  }
  return 0;
}

// What only the second has comes last; what one lacks is 0.
DiffSection Section(const std::string& name, const std::string& unit,
                    Compute compute, const RunStatistics& a,
                    const RunStatistics& b) {
  Side first;
  Side second;
  compute(a, first);
  compute(b, second);
  Side names = first;
  for (const auto& each : second) {
    if (std::none_of(first.begin(), first.end(), [&](const auto& other) {
          return other.first == each.first;
        })) {
      names.push_back(each);
    }
  }
  const auto value = [&unit](int64_t number) {
    return unit == "_bytes" ? Value(Bytes(number))
           : unit == "_ns"  ? Value::Ns(number)
                            : Value(number);
  };
  DiffSection section{name, {}};
  for (const auto& [what, unused] : names) {
    section.rows.push_back(
        {what, unit, value(At(first, what)), value(At(second, what))});
  }
  return section;
}

void Run(const RunStatistics& run, Side& side) {
  side = {{"ranks", run.world},
          {"stage", run.stage},
          {"chunks", run.chunks},
          {"complete steps", run.complete_steps},
          {"chunks made whole", run.copies},
          {"of them ahead of use", run.prefetched_copies},
          {"steps that departed", run.divergences}};
}

void Times(const RunStatistics& run, Side& side) {
  side = {{"a step", run.step_ns.median},
          {"of it stalled", run.stalled_ns.median}};
}

void Peaks(const RunStatistics& run, Side& side) {
  for (const TierStatistics& tier : run.tiers) {
    const std::string name(TierName(tier.tier));
    side.emplace_back(name + " peak", tier.peak_bytes);
    side.emplace_back(name + " budget", tier.budget_bytes);
  }
}

void Links(const RunStatistics& run, Side& side) {
  for (size_t i = 0; i < run.links.size(); ++i) {
    side.emplace_back(LinkName(run.links[i].link), run.link_bytes[i].median);
  }
}

void Stalls(const RunStatistics& run, Side& side) {
  for (const StallStatistics& stall : run.stalls) {
    side.emplace_back(RunCauseName(stall.cause),
                      stall.ns / std::max<int64_t>(std::ssize(run.steps), 1));
  }
}

// Where transfers of a state begin and end: what crosses the drive's link lives
// there, what the optimizer fetches from the device, there. Without transfers
// it is not known, but for parameters, which are gathered from the device then.
using StatesByChunk = std::map<std::pair<int32_t, StateKind>, std::string>;

StatesByChunk HomesOf(const RunRecord& record) {
  std::map<std::pair<int32_t, StateKind>, Tier> homes;
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
  StatesByChunk names;
  for (const auto& [key, home] : homes) names[key] = TierName(home);
  return names;
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
        {fmt::format("chunk {} {}", key.first, StateKindName(key.second)), "",
         home, other->second});
  }
  return section;
}

}  // namespace

std::vector<DiffSection> DiffRuns(const RunRecord& a, const RunRecord& b,
                                  const StepRange& steps) {
  const RunStatistics first = ComputeRunStatistics(a, steps);
  const RunStatistics second = ComputeRunStatistics(b, steps);
  std::vector<DiffSection> sections = {
      Section("run", "", Run, first, second),
      Section("time", "_ns", Times, first, second),
      Section("tiers", "_bytes", Peaks, first, second),
      Section("links", "_bytes", Links, first, second),
      Section("stalls", "_ns", Stalls, first, second),
      ChangedHomes(a, b)};
  std::erase_if(sections, [](const DiffSection& s) { return s.rows.empty(); });
  return sections;
}

}  // namespace castor
