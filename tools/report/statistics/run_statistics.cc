// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/statistics/run_statistics.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace castor {
namespace {

constexpr int kParts = 32;       // of a step, for what is shown over its course
constexpr int kWorstChunks = 3;  // per cause of a stall

SlotWorth WorthOf(const RunPlanClass& planned, int32_t moments) {
  SlotWorth worth;
  worth.slot_bytes = planned.slot_bytes;
  worth.slots = planned.slots;
  worth.shard_slots = planned.shard_slots;
  worth.shards = planned.shards;
  worth.cost = planned.cost;
  worth.lower_bound = planned.lower_bound;
  worth.optimal = planned.optimal;
  if (!planned.priced) return worth;
  double sum = 0;
  double dearest = 0;
  for (size_t i = 0; i < planned.prices.size(); ++i) {
    const RunSlotPrice& from = planned.prices[i];
    const int32_t end =
        i + 1 < planned.prices.size() ? planned.prices[i + 1].moment : moments;
    sum += from.price * static_cast<double>(end - from.moment);
    if (from.price > dearest) {
      dearest = from.price;
      worth.dearest_first = from.moment;
      worth.dearest_last = end - 1;
    }
  }
  // What is proved best differs from its bound by rounding alone.
  const double gap =
      planned.optimal ? 0 : std::max(0.0, planned.cost - planned.lower_bound);
  worth.one_more_saves = std::min(planned.cost, sum + gap);
  worth.one_less_costs = std::max(0.0, sum - gap);
  return worth;
}

Spread SpreadOf(std::vector<std::pair<int64_t, int32_t>> values_and_steps) {
  Spread spread;
  if (values_and_steps.empty()) return spread;
  std::sort(values_and_steps.begin(), values_and_steps.end());
  const auto value = [&](size_t i) { return values_and_steps[i].first; };
  const size_t count = values_and_steps.size();
  spread.min = value(0);
  spread.median = std::midpoint(value((count - 1) / 2), value(count / 2));
  spread.max = value(count - 1);
  for (size_t i = count; i-- > 0 && value(i) == spread.max;) {
    spread.max_step = values_and_steps[i].second;
  }
  return spread;
}

// The intervals of one rank that its statistics need.
struct RankTimes {
  std::vector<Interval> steps;
  std::vector<Interval> stalls;
  std::vector<Interval> updates;
  std::vector<Interval> moves;
};

class Builder {
 public:
  Builder(const RunRecord& record, const StepRange& steps)
      : record_(record),
        asked_(steps),
        steps_{steps.first, std::min(steps.last, LastStep(record))},
        windows_(FindStepWindows(record, steps)) {}

  RunStatistics Build() {
    DescribeRecord();
    result_.tiers = ComputeTierStatistics(record_, windows_, asked_, kParts);
    result_.links = ComputeLinkStatistics(record_, windows_, asked_, kParts);
    result_.stalls =
        ComputeStallStatistics(record_, result_.links, steps_, kWorstChunks);
    CountEvents();
    CountGuesses();
    CountCopies();
    AddSteps();
    AddRanks();
    AddMarks();
    return std::move(result_);
  }

 private:
  void DescribeRecord() {
    result_.states = record_.states();
    result_.events = static_cast<int64_t>(record_.events.size());
    result_.dropped = record_.dropped;
    result_.file_bytes = record_.file_bytes;
    result_.arenas = record_.arenas;
    result_.plan = ComputePlanStatistics(record_);
    for (const RunHomesInfo& homes : record_.homes) {
      if (homes.rank <
          (result_.homes.empty() ? INT32_MAX : result_.homes.front().rank)) {
        result_.homes.clear();
      } else if (homes.rank > result_.homes.front().rank) {
        continue;
      }
      result_.homes.push_back(homes);
    }
    if (record_.ranks.empty()) return;
    const RunRankInfo& rank = record_.ranks.front();
    result_.world = rank.world;
    result_.stage = rank.stage;
    result_.chunks = static_cast<int64_t>(rank.chunks.size());
    for (const RunChunkInfo& chunk : rank.chunks) {
      result_.chunk_bytes = std::max(result_.chunk_bytes, chunk.bytes);
    }
  }

  void AddMarks() {
    int64_t begin_ns = INT64_MAX;
    for (const RunEvent& event : record_.events) {
      begin_ns = std::min(begin_ns, event.begin_ns);
    }
    for (RunMark mark : record_.marks) {
      if (!steps_.Holds(mark.step) && !asked_.HoldsAll()) continue;
      mark.at_ns -= std::min(begin_ns, mark.at_ns);
      result_.marks.push_back(std::move(mark));
    }
    std::sort(result_.marks.begin(), result_.marks.end(),
              [](const RunMark& a, const RunMark& b) {
                return std::tie(a.at_ns, a.rank, a.words) <
                       std::tie(b.at_ns, b.rank, b.words);
              });
  }

  void CountEvents() {
    for (const RunEvent& event : record_.events) {
      if (!steps_.Holds(event.step)) continue;
      RankTimes& times = times_[event.rank];
      const Interval time = {event.begin_ns, event.end_ns};
      if (MovesBytes(event)) times.moves.push_back(time);
      switch (event.kind) {
        case RunEventKind::kStall:
          times.stalls.push_back(time);
          break;
        case RunEventKind::kUpdate:
          times.updates.push_back(time);
          break;
        case RunEventKind::kDivergence:
          ++result_.divergences;
          break;
        default:
          break;
      }
    }
  }

  // A step that updates a chunk again took no guess of the chunk.
  void CountGuesses() {
    std::map<std::tuple<int32_t, int32_t, int32_t>, int64_t> guessed;
    std::set<std::tuple<int32_t, int32_t, int32_t>> again;
    for (const RunEvent& event : record_.events) {
      if (event.kind != RunEventKind::kUpdate || !steps_.Holds(event.step)) {
        continue;
      }
      const std::tuple key(event.rank, event.step, event.chunk);
      if (event.cause == RunCause::kGuess) {
        guessed[key] += event.end_ns - event.begin_ns;
      } else {
        again.insert(key);
      }
    }
    result_.guesses = static_cast<int64_t>(guessed.size());
    for (const auto& [key, ns] : guessed) {
      if (!again.contains(key)) continue;
      ++result_.wrong_guesses;
      result_.wrong_ns += ns;
    }
  }

  void CountCopies() {
    for (const Residency& copy : FindResidencies(record_.events)) {
      if (!steps_.Holds(copy.step)) continue;
      ++result_.copies;
      if (copy.fetched == RunCause::kPrefetch) ++result_.prefetched_copies;
    }
  }

  // A step's bytes count by the step they were moved for; its waiting by when
  // it was.
  void AddSteps() {
    std::map<int32_t, StepStatistics> steps;
    std::map<int32_t, size_t> ranks_ended;
    std::set<int32_t> ranks;
    std::map<int32_t, IntervalSet> stalls;
    for (const auto& [rank, times] : times_) stalls[rank] = Union(times.stalls);
    for (const StepWindow& window : windows_) {
      StepStatistics& step = steps[window.step];
      step.step = window.step;
      step.ns = std::max(step.ns, window.time.length());
      const int64_t stalled =
          Length(Intersection(stalls[window.rank], {window.time}));
      step.stalled_ns = std::max(step.stalled_ns, stalled);
      ranks.insert(window.rank);
      if (window.complete) ++ranks_ended[window.step];
      times_[window.rank].steps.push_back(window.time);
    }
    AddLinkBytes(&steps);
    // Where a record is damaged, all events of a rank may be missing.
    const size_t all_ranks = std::max(ranks.size(), record_.ranks.size());
    for (auto& [number, step] : steps) {
      step.complete = ranks_ended[number] == all_ranks;
      if (step.complete) ++result_.complete_steps;
      result_.steps.push_back(std::move(step));
    }
    result_.step_ns =
        SpreadOver([](const StepStatistics& step) { return step.ns; });
    result_.stalled_ns =
        SpreadOver([](const StepStatistics& step) { return step.stalled_ns; });
    for (size_t i = 0; i < result_.links.size(); ++i) {
      result_.link_bytes.push_back(SpreadOver(
          [i](const StepStatistics& step) { return step.link_bytes[i]; }));
    }
  }

  void AddLinkBytes(std::map<int32_t, StepStatistics>* steps) const {
    for (auto& [number, step] : *steps) {
      step.link_bytes.resize(result_.links.size());
    }
    for (const RunEvent& event : record_.events) {
      if (!MovesBytes(event)) continue;
      const auto step = steps->find(event.step);
      if (step == steps->end()) continue;
      const auto link =
          std::find_if(result_.links.begin(), result_.links.end(),
                       [id = LinkOf(event)](const LinkStatistics& l) {
                         return l.link == id;
                       });
      step->second
          .link_bytes[static_cast<size_t>(link - result_.links.begin())] +=
          event.bytes;
    }
  }

  template <typename Value>
  Spread SpreadOver(Value value) const {
    std::vector<std::pair<int64_t, int32_t>> values;
    for (const StepStatistics& step : result_.steps) {
      if (step.complete) values.emplace_back(value(step), step.step);
    }
    return SpreadOf(std::move(values));
  }

  int64_t BetweenSteps(int32_t rank) const {
    int64_t ns = 0;
    for (size_t i = 1; i < windows_.size(); ++i) {
      const StepWindow& before = windows_[i - 1];
      const StepWindow& window = windows_[i];
      if (window.rank != rank || before.rank != rank ||
          window.step != before.step + 1) {
        continue;
      }
      ns += window.time.begin - before.time.end;
    }
    return ns;
  }

  void AddRanks() {
    RankStatistics& all = result_.all_ranks;
    result_.link_unhidden_ns.resize(result_.links.size());
    for (auto& [number, times] : times_) {
      const IntervalSet steps = Union(std::move(times.steps));
      const IntervalSet stalls = Union(std::move(times.stalls));
      const IntervalSet moves = Union(std::move(times.moves));
      RankStatistics rank;
      rank.rank = number;
      rank.step_ns = Length(steps);
      rank.between_ns = BetweenSteps(number);
      rank.stalled_ns = Length(Intersection(stalls, steps));
      rank.updating_ns = Length(Union(std::move(times.updates)));
      rank.moving_ns = Length(moves);
      rank.unhidden_ns = Length(Intersection(moves, stalls));
      all.step_ns += rank.step_ns;
      all.between_ns += rank.between_ns;
      all.stalled_ns += rank.stalled_ns;
      all.updating_ns += rank.updating_ns;
      all.moving_ns += rank.moving_ns;
      all.unhidden_ns += rank.unhidden_ns;
      result_.ranks.push_back(rank);
      for (size_t i = 0; i < result_.links.size(); ++i) {
        result_.link_unhidden_ns[i] +=
            Length(Intersection(result_.links[i].busy[number], stalls));
      }
    }
  }

  const RunRecord& record_;
  const StepRange asked_;
  const StepRange steps_;  // of them, up to the last there is
  const std::vector<StepWindow> windows_;
  std::map<int32_t, RankTimes> times_;
  RunStatistics result_;
};

}  // namespace

PlanStatistics StatisticsOfPlan(const RunPlanInfo& plan) {
  PlanStatistics statistics;
  statistics.step = plan.step;
  statistics.in_seconds = plan.in_seconds;
  statistics.moments = plan.moments;
  for (const RunPlanClass& planned : plan.classes) {
    statistics.slots.push_back(WorthOf(planned, plan.moments));
  }
  return statistics;
}

std::optional<PlanStatistics> ComputePlanStatistics(const RunRecord& record) {
  if (record.plans.empty()) return std::nullopt;
  return StatisticsOfPlan(record.plans.front());
}

RunStatistics ComputeRunStatistics(const RunRecord& record,
                                   const StepRange& steps) {
  return Builder(record, steps).Build();
}

}  // namespace castor
