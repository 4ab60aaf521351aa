// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/diff/diff_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "chunk/base/tier.h"
#include "placement/run_event.h"
#include "tools/report/run_statistics.h"

namespace castor {
namespace {

// What one file has, by name, in the order in which it came up.
class Side {
 public:
  void Set(const std::string& what, DiffValue value) {
    if (values_.insert_or_assign(what, std::move(value)).second) {
      order_.push_back(what);
    }
  }
  DiffValue At(const std::string& what) const {
    const auto found = values_.find(what);
    return found == values_.end() ? DiffValue() : found->second;
  }
  const std::vector<std::string>& order() const { return order_; }

 private:
  std::vector<std::string> order_;
  std::map<std::string, DiffValue> values_;
};

// What only the second has comes last. What one of two that count lacks is 0.
std::vector<DiffRow> Rows(const Side& a, const Side& b, DiffUnit unit) {
  std::vector<std::string> names = a.order();
  for (const std::string& name : b.order()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  std::vector<DiffRow> rows;
  for (const std::string& name : names) {
    DiffRow row{name, unit, a.At(name), b.At(name)};
    if (unit != DiffUnit::kNone) {
      if (row.a.index() == 0) row.a = int64_t{0};
      if (row.b.index() == 0) row.b = int64_t{0};
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

using Compute = void (*)(const RunStatistics&, Side*);

DiffSection Section(std::string_view name, DiffUnit unit, Compute compute,
                    const RunStatistics& a, const RunStatistics& b) {
  Side first;
  Side second;
  compute(a, &first);
  compute(b, &second);
  return {std::string(name), Rows(first, second, unit)};
}

void Run(const RunStatistics& run, Side* side) {
  side->Set("ranks", int64_t{run.world});
  side->Set("stage", int64_t{run.stage});
  side->Set("chunks", run.chunks);
  side->Set("complete steps", run.complete_steps);
  side->Set("chunks made whole", run.copies);
  side->Set("of them ahead of use", run.prefetched_copies);
  side->Set("steps that departed", run.divergences);
}

void Times(const RunStatistics& run, Side* side) {
  side->Set("a step", run.step_ns.median);
  side->Set("of it stalled", run.stalled_ns.median);
}

void Peaks(const RunStatistics& run, Side* side) {
  for (const TierStatistics& tier : run.tiers) {
    side->Set(fmt::format("{} peak", TierName(tier.tier)), tier.peak_bytes);
    side->Set(fmt::format("{} budget", TierName(tier.tier)), tier.budget_bytes);
  }
}

void Links(const RunStatistics& run, Side* side) {
  for (size_t i = 0; i < run.links.size(); ++i) {
    side->Set(LinkName(run.links[i].link), run.link_bytes[i].median);
  }
}

void Stalls(const RunStatistics& run, Side* side) {
  for (const StallStatistics& stall : run.stalls) {
    side->Set(std::string(RunCauseName(stall.cause)),
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
        {fmt::format("chunk {} {}", key.first, StateKindName(key.second)),
         DiffUnit::kNone, home, other->second});
  }
  return section;
}

}  // namespace

std::vector<DiffSection> DiffRuns(const RunRecord& a, const RunRecord& b,
                                  const StepRange& steps) {
  const RunStatistics first = ComputeRunStatistics(a, steps);
  const RunStatistics second = ComputeRunStatistics(b, steps);
  std::vector<DiffSection> sections;
  sections.push_back(Section("run", DiffUnit::kNone, Run, first, second));
  sections.push_back(Section("time", DiffUnit::kNs, Times, first, second));
  sections.push_back(Section("tiers", DiffUnit::kBytes, Peaks, first, second));
  sections.push_back(Section("links", DiffUnit::kBytes, Links, first, second));
  sections.push_back(Section("stalls", DiffUnit::kNs, Stalls, first, second));
  sections.push_back(ChangedHomes(a, b));
  std::erase_if(sections, [](const DiffSection& s) { return s.rows.empty(); });
  return sections;
}

}  // namespace castor
