// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "tools/report/statistics/run_statistics.h"

namespace castor {
namespace {

// From `time.begin` to `time.end` the tier held `bytes`.
struct Level {
  Interval time;
  int64_t bytes = 0;
  int32_t step = 0;
};

// What one rank had on one tier, from its first event to the end of time. Of
// several events at one time, which point into one list, the last holds.
std::vector<Level> LevelsOf(std::vector<const RunEvent*> events) {
  std::sort(events.begin(), events.end(),
            [](const RunEvent* a, const RunEvent* b) {
              return std::pair(a->begin_ns, a) < std::pair(b->begin_ns, b);
            });
  std::vector<Level> levels;
  for (const RunEvent* event : events) {
    if (!levels.empty()) levels.back().time.end = event->begin_ns;
    levels.push_back({{event->begin_ns, INT64_MAX}, event->bytes, event->step});
  }
  return levels;
}

class TierBuilder {
 public:
  TierBuilder(const RunRecord& record, Tier tier, int parts) {
    result_.tier = tier;
    result_.over_step.resize(static_cast<size_t>(parts));
    for (const RunEvent& event : record.events) {
      if (event.kind == RunEventKind::kTierBytes && event.to == tier) {
        events_[event.rank].push_back(&event);
      }
    }
    for (const RunHomesInfo& homes : record.homes) {
      budgets_[{homes.rank, homes.step}] = homes.budget_bytes[TierIndex(tier)];
    }
    for (const RunRankInfo& rank : record.ranks) {
      budgets_[{rank.rank, 0}] = rank.budget_bytes[TierIndex(tier)];
      if (result_.peak_rank < 0) Peak(rank.rank, 0, 0);
    }
  }

  bool known() const { return !events_.empty() || result_.budget_bytes > 0; }

  TierStatistics Build(std::span<const StepWindow> windows,
                       const StepRange& steps) {
    const bool whole_only =
        std::any_of(windows.begin(), windows.end(),
                    [](const StepWindow& window) { return window.complete; });
    double drawn = 0;
    for (const auto& [rank, events] : events_) {
      const std::vector<Level> levels = LevelsOf(events);
      if (steps.HoldsAll()) {
        for (const Level& level : levels) Peak(rank, level.step, level.bytes);
      }
      for (const StepWindow& window : windows) {
        if (window.rank != rank) continue;
        const bool draw = window.complete || !whole_only;
        if (draw) ++drawn;
        AddWindow(window, levels, draw);
      }
    }
    for (double& part : result_.over_step) part /= std::max(drawn, 1.0);
    return std::move(result_);
  }

 private:
  void Peak(int32_t rank, int32_t step, int64_t bytes) {
    if (result_.peak_rank >= 0 && bytes <= result_.peak_bytes) return;
    result_.peak_bytes = bytes;
    result_.peak_rank = rank;
    result_.peak_step = step;
    // That of the time: an engine may have been resealed.
    const auto next = budgets_.upper_bound({rank, step});
    const bool known =
        next != budgets_.begin() && std::prev(next)->first.first == rank;
    result_.budget_bytes = known ? std::prev(next)->second : 0;
  }

  void AddWindow(const StepWindow& window, const std::vector<Level>& levels,
                 bool draw) {
    auto level = std::upper_bound(
        levels.begin(), levels.end(), window.time.begin,
        [](int64_t at, const Level& l) { return at < l.time.end; });
    for (; level != levels.end() && level->time.begin < window.time.end;
         ++level) {
      Peak(window.rank, window.step, level->bytes);
      if (!draw) continue;
      AddShares(std::span(&level->time, 1), window.time,
                static_cast<double>(level->bytes), result_.over_step);
    }
  }

  std::map<int32_t, std::vector<const RunEvent*>> events_;  // by rank
  // By rank and the step from which on.
  std::map<std::pair<int32_t, int32_t>, int64_t> budgets_;
  TierStatistics result_;
};

}  // namespace

std::vector<TierStatistics> ComputeTierStatistics(
    const RunRecord& record, std::span<const StepWindow> windows,
    const StepRange& steps, int parts) {
  std::vector<TierStatistics> tiers;
  for (const Tier tier : kAllTiers) {
    TierBuilder builder(record, tier, parts);
    if (builder.known()) tiers.push_back(builder.Build(windows, steps));
  }
  return tiers;
}

}  // namespace castor
