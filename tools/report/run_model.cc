// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/run_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "collectives/answers/foretell.h"
#include "collectives/answers/seal_forecast.h"
#include "collectives/memory/held_moments.h"
#include "collectives/sealing/seal_plan.h"
#include "placement/memory_passes.h"
#include "placement/trace.h"
#include "tools/report/statistics/intervals.h"
#include "tools/report/statistics/run_times.h"

namespace castor {
namespace {

// Bytes per second; empty where nothing moved.
std::optional<int64_t> RateOf(int64_t bytes, int64_t ns) {
  if (bytes <= 0 || ns <= 0) return std::nullopt;
  const double rate = static_cast<double>(bytes) / static_cast<double>(ns);
  return std::clamp<int64_t>(static_cast<int64_t>(rate * 1e9),
                             kMinBytesPerSecond, kMaxBytesPerSecond);
}

std::optional<LinkModel> LinkAt(std::optional<int64_t> rate) {
  if (!rate) return std::nullopt;
  return LinkModel{*rate, 0};
}

std::optional<RingModel> RingAt(std::optional<int64_t> rate) {
  if (!rate) return std::nullopt;
  return RingModel{*rate, 0};
}

const LinkStatistics* Find(const RunStatistics& run, const LinkId& id) {
  const auto link = std::ranges::find_if(
      run.links, [&](const LinkStatistics& l) { return l.link == id; });
  return link == run.links.end() ? nullptr : &*link;
}

std::optional<int64_t> RateOf(const RunStatistics& run, const LinkId& id) {
  const LinkStatistics* link = Find(run, id);
  if (link == nullptr) return std::nullopt;
  return RateOf(link->bytes, link->busy_ns);
}

// How much of any stretch of time a set covers.
class Cover {
 public:
  explicit Cover(IntervalSet set) : set_(std::move(set)) {
    for (const Interval& each : set_) {
      before_.push_back(length_);
      length_ += each.length();
    }
  }

  int64_t length() const { return length_; }
  int64_t Of(const Interval& time) const {
    return Up(time.end) - Up(time.begin);
  }

 private:
  // Of what comes before `at`.
  int64_t Up(int64_t at) const {
    const auto next = std::upper_bound(
        set_.begin(), set_.end(), at,
        [](int64_t t, const Interval& each) { return t < each.begin; });
    if (next == set_.begin()) return 0;
    const auto i = static_cast<size_t>(next - set_.begin()) - 1;
    return before_[i] + std::min(at, set_[i].end) - set_[i].begin;
  }

  IntervalSet set_;
  std::vector<int64_t> before_;
  int64_t length_ = 0;
};

// Bytes that moved, and the time in which they did.
struct Moved {
  double bytes = 0;
  int64_t ns = 0;

  std::optional<LinkModel> link() const {
    return LinkAt(RateOf(static_cast<int64_t>(bytes), ns));
  }
};

// The drive's rates while it only read, only wrote, and did both, as if the
// bytes of a transfer moved evenly. One way of working that hardly occurred is
// not told apart.
void MeasureDrive(const RunRecord& record, const RunStatistics& run,
                  TierModel* machine) {
  constexpr double kOften = 0.05;
  const LinkId ids[] = {{RunEventKind::kTransfer, Tier::kNvme, Tier::kHost},
                        {RunEventKind::kTransfer, Tier::kHost, Tier::kNvme}};
  const auto busy = [&](const LinkId& id, int32_t rank) {
    const LinkStatistics* link = Find(run, id);
    if (link == nullptr || !link->busy.contains(rank)) return IntervalSet();
    return link->busy.at(rank);
  };
  Moved alone[2];
  Moved all[2];
  Moved both;
  for (const RunRankInfo& rank : record.ranks) {
    const IntervalSet sets[] = {busy(ids[0], rank.rank),
                                busy(ids[1], rank.rank)};
    const Cover together(Intersection(sets[0], sets[1]));
    both.ns += together.length();
    for (int way = 0; way < 2; ++way) {
      const int64_t length = Length(sets[way]);
      all[way].ns += length;
      alone[way].ns += length - together.length();
    }
    const Cover covers[] = {Cover(sets[0]), Cover(sets[1])};
    for (const RunEvent& event : record.events) {
      if (event.rank != rank.rank || event.kind != ids[0].kind) continue;
      const LinkId id = LinkOf(event);
      const Interval time = {event.begin_ns, event.end_ns};
      for (int way = 0; way < 2; ++way) {
        const int64_t in_steps = covers[way].Of(time);
        if (id != ids[way] || in_steps == 0) continue;
        const double per_ns = static_cast<double>(event.bytes) /
                              static_cast<double>(time.length());
        const double with = per_ns * static_cast<double>(together.Of(time));
        all[way].bytes += per_ns * static_cast<double>(in_steps);
        both.bytes += with;
        alone[way].bytes += per_ns * static_cast<double>(in_steps) - with;
      }
    }
  }
  const auto often = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) > kOften * static_cast<double>(whole);
  };
  const auto rate = [&](int way) {
    return (often(alone[way].ns, all[way].ns) ? alone[way] : all[way]).link();
  };
  machine->nvme_read = rate(0);
  machine->nvme_write = rate(1);
  if (often(both.ns, std::max(all[0].ns, all[1].ns))) {
    machine->nvme_mixed = both.link();
  }
}

}  // namespace

TraceFile WithMeasuredTimes(const RunRecord& record, TraceFile trace,
                            int32_t rank, int32_t step) {
  const std::optional<Interval> time = FindLaneTime(record, rank, step);
  if (!time) return trace;
  const Trace& accesses = trace.step.accesses;
  const std::map<size_t, Interval> uses =
      FindUses(accesses, record.events, rank, step);
  std::vector<Interval> waits;
  for (const RunEvent& event : record.events) {
    if (event.kind == RunEventKind::kStall && event.rank == rank &&
        event.step == step) {
      waits.push_back({event.begin_ns, event.end_ns});
    }
  }
  const IntervalSet waiting = Union(std::move(waits));
  // Moments whose time is known, in order: uses, and their ends.
  std::vector<std::pair<size_t, int64_t>> known;
  std::map<ChunkId, std::deque<int64_t>> ends;
  for (size_t i = 0; i < accesses.size(); ++i) {
    const Access& access = accesses[i];
    if (access.kind == AccessKind::kUse) {
      const auto use = uses.find(i);
      if (use == uses.end()) {
        ends[access.chunk].push_back(INT64_MIN);
        continue;
      }
      known.emplace_back(i, use->second.begin);
      ends[access.chunk].push_back(use->second.end);
    } else if (access.kind == AccessKind::kUseEnd &&
               !ends[access.chunk].empty()) {
      const int64_t at = ends[access.chunk].front();
      ends[access.chunk].pop_front();
      if (at != INT64_MIN) known.emplace_back(i, at);
    }
  }
  trace.step.compute_ns.assign(accesses.size(), 0);
  if (known.empty()) return trace;
  const auto computed = [&](int64_t from, int64_t to) {
    if (to <= from) return int64_t{0};
    return to - from - Length(Intersection(waiting, {{from, to}}));
  };
  int64_t at = known.front().second;
  for (size_t k = 0; k + 1 < known.size(); ++k) {
    const int64_t next = std::max(at, known[k + 1].second);
    trace.step.compute_ns[known[k].first] = computed(at, next);
    at = next;
  }
  // What comes before the first access belongs to the last moment; what the
  // engine is at work then is not the trainer's computing.
  std::vector<Interval> busy = waiting;
  for (const RunEvent& event : record.events) {
    if (event.rank != rank || event.end_ns <= time->begin ||
        event.begin_ns >= known.front().second) {
      continue;
    }
    if (MovesBytes(event) || event.kind == RunEventKind::kUpdate) {
      busy.push_back({event.begin_ns, event.end_ns});
    }
  }
  const Interval before = {time->begin, known.front().second};
  if (before.length() > 0) {
    trace.step.compute_ns.back() +=
        before.length() -
        Length(Intersection(Union(std::move(busy)), {before}));
  }
  return trace;
}

TierModel MeasuredMachine(const RunRecord& record, const RunStatistics& run,
                          const ChunkLayout& layout, const Sharding& sharding) {
  using enum Tier;
  constexpr auto kMove = RunEventKind::kTransfer;
  TierModel machine;
  machine.host_to_device = LinkAt(RateOf(run, {kMove, kHost, kDevice}));
  machine.device_to_host = LinkAt(RateOf(run, {kMove, kDevice, kHost}));
  MeasureDrive(record, run, &machine);
  machine.all_gather = RingAt(RateOf(run, {RunEventKind::kGather}));
  machine.reduce_scatter = RingAt(RateOf(run, {RunEventKind::kReduceScatter}));
  Bytes updated;
  std::map<int32_t, std::vector<Interval>> updates;
  for (const RunEvent& event : record.events) {
    if (event.kind != RunEventKind::kUpdate) continue;
    const ChunkInfo& chunk = layout.chunk(ChunkId(event.chunk));
    updated += UpdateBytes(
        sharding.update_pass(layout.groups()[static_cast<size_t>(chunk.group)]),
        Elements(event.bytes / 4));
    updates[event.rank].push_back({event.begin_ns, event.end_ns});
  }
  int64_t updating_ns = 0;
  for (auto& [rank, intervals] : updates) {
    updating_ns += Length(Union(std::move(intervals)));
  }
  if (const std::optional<int64_t> rate =
          RateOf(updated.count(), updating_ns)) {
    machine.optimizer = RateModel{*rate};
  }
  return machine;
}

Result<RunModel> ModelOf(const RunRecord& record, const RunSetup& setup,
                         const RunStatistics& run, int32_t step) {
  RunModel model;
  if (!record.ranks.empty() && run.complete_steps == 0) {
    return FailedPrecondition(
        "the record holds no whole step, and a simulation needs one");
  }
  if (record.ranks.empty() || !setup.layout || !setup.options ||
      setup.traces.empty()) {
    return FailedPrecondition(
        "the record lacks what a simulation needs: the layout, the options and "
        "the trace of a step, which records of this version have");
  }
  model.rank = record.ranks.front().rank;
  model.world = record.ranks.front().world;
  model.of_step = step;
  const std::optional<Interval> time = FindLaneTime(record, model.rank, step);
  if (!time) {
    return FailedPrecondition(fmt::format(
        "the record has no whole step {} of rank {}", step, model.rank));
  }
  model.measured_ns = time->length();
  model.trace =
      WithMeasuredTimes(record, *setup.TraceOf(model.rank), model.rank, step);
  model.params = setup.layout->params;
  model.layout = setup.layout->layout;
  model.options = *setup.options;
  // Those of the step: an engine may have been resealed.
  for (const RunHomesInfo& homes : record.homes) {
    if (homes.rank != model.rank || homes.step > step) continue;
    for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
      const Bytes budget(homes.budget_bytes[TierIndex(tier)]);
      if (budget == Bytes(0)) continue;
      (tier == Tier::kDevice ? model.options.device_budget
                             : model.options.host_budget) = budget;
    }
  }
  if (setup.machine) model.options.machine = setup.machine;
  // Who computes is not in the record, and a machine is not always as fast as
  // its file says: what comes nearest to the run.
  RunModel best;
  int64_t nearest = INT64_MAX;
  for (const bool measured : {false, true}) {
    if (!measured && !setup.machine) continue;
    model.machine =
        measured ? MeasuredMachine(
                       record, run, model.layout,
                       ShardingOf(model.options, model.world, model.rank))
                 : *setup.machine;
    for (const SimTrainer trainer :
         {SimTrainer::kStream, SimTrainer::kThread}) {
      model.trainer = trainer;
      CASTOR_ASSIGN_OR_RETURN(const SimulatedStep simulated,
                              SimulateModel(model));
      const int64_t off = std::abs(simulated.ns() - model.measured_ns);
      if (off >= nearest) continue;
      nearest = off;
      best = model;
    }
  }
  return best;
}

Result<SimulatedStep> SimulateModel(const RunModel& model) {
  EngineRequest request;
  request.params = model.params;
  request.options = model.options;
  request.world = model.world;
  request.rank = model.rank;
  request.declared.largest_lease = Bytes(0);
  for (const LeaseChange& lease : model.trace.step.leases) {
    request.declared.largest_lease =
        std::max(request.declared.largest_lease, lease.bytes);
  }
  request.declared.held =
      HeldMomentsOf(model.layout, model.trace.step.accesses);
  constexpr size_t kSteps = 4;  // the last of them is steady
  CASTOR_ASSIGN_OR_RETURN(
      const Foretold told,
      Foretell({.engine = request,
                .layout = &model.layout,
                .steps = std::vector(kSteps, &model.trace.step),
                .machine = ForetoldMachine{.speeds = model.machine,
                                           .trainer = model.trainer}}));
  CASTOR_RETURN_IF_ERROR(told.fits);
  return told.run->steady();
}

}  // namespace castor
