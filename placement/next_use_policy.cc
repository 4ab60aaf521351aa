// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/next_use_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace castor {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// A step whose end state is its start state is usually found at once; a plan is
// valid without it, so the search for one is short.
constexpr int kMaxPasses = 4;

size_t Index(int32_t slot_class) { return static_cast<size_t>(slot_class); }

// Slots of each class pinned at each moment, after that moment's access.
class PinnedCounts {
 public:
  PinnedCounts(const Trace& trace, const PlanProblem& problem)
      : counts_(problem.slots.size(),
                std::vector<int64_t>(trace.size() + 1, 0)) {
    std::vector<int> pins(problem.param_class.size(), 0);
    std::vector<int64_t> now(problem.slots.size(), 0);
    for (size_t i = 0; i < trace.size(); ++i) {
      const size_t chunk = trace[i].chunk.index();
      const int32_t params = problem.param_class[chunk];
      const int32_t grads = problem.grad_class[chunk];
      switch (trace[i].kind) {
        case AccessKind::kUse:
          if (pins[chunk]++ == 0 && params != kNoSlotClass)
            ++now[Index(params)];
          break;
        case AccessKind::kUseEnd:
          if (--pins[chunk] == 0 && params != kNoSlotClass)
            --now[Index(params)];
          break;
        case AccessKind::kGradOpen:
          ++now[Index(grads)];
          break;
        case AccessKind::kGradClose:
          --now[Index(grads)];
          break;
      }
      for (size_t c = 0; c < now.size(); ++c) counts_[c][i] = now[c];
    }
  }

  int64_t at(int32_t slot_class, size_t moment) const {
    return counts_[Index(slot_class)][moment];
  }
  int64_t peak(size_t slot_class) const {
    return *std::max_element(counts_[slot_class].begin(),
                             counts_[slot_class].end());
  }

 private:
  std::vector<std::vector<int64_t>> counts_;
};

class Planner {
 public:
  Planner(const Trace& trace, const PlanProblem& problem)
      : trace_(trace),
        problem_(problem),
        pinned_(trace, problem),
        uses_(problem.param_class.size()) {
    for (size_t i = 0; i < trace.size(); ++i) {
      if (trace[i].kind == AccessKind::kUse &&
          problem.param_class[trace[i].chunk.index()] != kNoSlotClass) {
        uses_[trace[i].chunk.index()].push_back(static_cast<int64_t>(i));
      }
    }
  }

  Status CheckFeasible() const {
    for (size_t c = 0; c < problem_.slots.size(); ++c) {
      for (size_t i = 0; i < trace_.size(); ++i) {
        const int64_t held = pinned_.at(static_cast<int32_t>(c), i);
        if (held > problem_.slots[c]) {
          return Infeasible(fmt::format(
              "the step holds {} gathered chunks at moment {} ({} of chunk {}) "
              "and class {} has {} slots; raise the device budget or hold "
              "fewer "
              "parameters at once",
              held, i, AccessKindName(trace_[i].kind), trace_[i].chunk.value(),
              c, problem_.slots[c]));
        }
      }
    }
    return OkStatus();
  }

  // One pass over the trace from `kept` copies.
  Plan Run(const std::vector<ChunkId>& kept) {
    Plan plan;
    const size_t chunks = uses_.size();
    resident_.assign(chunks, false);
    waiting_.assign(chunks, false);
    pins_.assign(chunks, 0);
    next_.assign(chunks, 0);
    free_ = problem_.slots;
    reserved_.assign(problem_.slots.size(),
                     std::vector<int64_t>(trace_.size() + 1, 0));
    waiting_count_ = 0;
    scan_ = 0;
    for (ChunkId chunk : kept) MakeResident(chunk);
    plan.initial = kept;
    moves_ = &plan.moves;
    Prefetch(-1);
    for (const Move& move : plan.moves) {
      if (move.kind == MoveKind::kGather) {
        plan.initial.push_back(move.chunk);
      } else {
        std::erase(plan.initial, move.chunk);
      }
    }
    plan.moves.clear();
    for (size_t i = 0; i < trace_.size(); ++i) {
      plan.first_move.push_back(static_cast<int32_t>(plan.moves.size()));
      Serve(static_cast<int64_t>(i));
      Prefetch(static_cast<int64_t>(i));
    }
    plan.first_move.push_back(static_cast<int32_t>(plan.moves.size()));
    return plan;
  }

  // Copies still valid after the step, once Run is done.
  std::vector<ChunkId> Survivors() const {
    std::vector<ChunkId> survivors;
    for (size_t c = 0; c < resident_.size(); ++c) {
      if (resident_[c] && problem_.survives_step[c]) {
        survivors.push_back(ChunkId(static_cast<int32_t>(c)));
      }
    }
    return survivors;
  }

 private:
  void MakeResident(ChunkId chunk) {
    resident_[chunk.index()] = true;
    --free_[Index(problem_.param_class[chunk.index()])];
  }

  void Release(ChunkId chunk, RunCause cause, int64_t moment) {
    moves_->push_back({MoveKind::kRelease, cause, chunk});
    scan_ = std::min(scan_, NextUse(chunk.index(), moment));
    resident_[chunk.index()] = false;
    ++free_[Index(problem_.param_class[chunk.index()])];
  }

  // The first use at or after `moment`; a chunk whose copy survives the step is
  // used again in the next one.
  int64_t NextUse(size_t chunk, int64_t moment) {
    const std::vector<int64_t>& uses = uses_[chunk];
    size_t& next = next_[chunk];
    while (next < uses.size() && uses[next] < moment) ++next;
    if (next < uses.size()) return uses[next];
    if (problem_.survives_step[chunk] && !uses.empty()) {
      return uses[0] + static_cast<int64_t>(trace_.size());
    }
    return kNever;
  }

  // The unpinned copy of the class that is used furthest away for its cost,
  // among those next used after `not_before`; invalid when there is none.
  ChunkId Victim(int32_t slot_class, int64_t moment, int64_t not_before) {
    ChunkId best;
    double best_score = -1;
    for (size_t c = 0; c < resident_.size(); ++c) {
      if (!resident_[c] || pins_[c] > 0 || waiting_[c] ||
          problem_.param_class[c] != slot_class) {
        continue;
      }
      const int64_t next = NextUse(c, moment);
      if (next <= not_before) continue;
      const double score =
          next == kNever
              ? std::numeric_limits<double>::infinity()
              : static_cast<double>(next - moment) / problem_.fetch_cost[c];
      if (score > best_score) {
        best_score = score;
        best = ChunkId(static_cast<int32_t>(c));
      }
    }
    return best;
  }

  void MakeRoom(int32_t slot_class, int64_t moment) {
    if (free_[Index(slot_class)] > 0) return;
    const ChunkId victim = Victim(slot_class, moment, -1);
    // Feasibility and the reservations of prefetched copies leave one.
    CASTOR_CHECK(victim.valid());
    Release(victim, RunCause::kRoom, moment);
  }

  void Serve(int64_t moment) {
    const Access& access = trace_[static_cast<size_t>(moment)];
    const size_t chunk = access.chunk.index();
    switch (access.kind) {
      case AccessKind::kUse:
        if (problem_.param_class[chunk] == kNoSlotClass) break;
        if (!resident_[chunk]) {
          MakeRoom(problem_.param_class[chunk], moment);
          MakeResident(access.chunk);
          moves_->push_back(
              {MoveKind::kGather, RunCause::kDemand, access.chunk});
        }
        if (waiting_[chunk]) {
          waiting_[chunk] = false;
          --waiting_count_;
        }
        ++pins_[chunk];
        break;
      case AccessKind::kUseEnd:
        if (problem_.param_class[chunk] == kNoSlotClass) break;
        --pins_[chunk];
        break;
      case AccessKind::kGradOpen:
        MakeRoom(problem_.grad_class[chunk], moment);
        --free_[Index(problem_.grad_class[chunk])];
        break;
      case AccessKind::kGradClose:
        ++free_[Index(problem_.grad_class[chunk])];
        break;
    }
  }

  // Whether a slot of the class stays unneeded by accesses at moments
  // (from, to), beside what is reserved already.
  bool StaysFree(int32_t slot_class, int64_t from, int64_t to) const {
    for (int64_t j = from; j < to; ++j) {
      const size_t at = static_cast<size_t>(j);
      if (pinned_.at(slot_class, at) + reserved_[Index(slot_class)][at] >=
          problem_.slots[Index(slot_class)]) {
        return false;
      }
    }
    return true;
  }

  // Gathers the next missing chunks ahead, as far as the depth and the slots
  // allow, after the access at `moment` has been served.
  void Prefetch(int64_t moment) {
    scan_ = std::max(scan_, moment + 1);
    int64_t position = scan_;
    bool all_there = true;
    while (waiting_count_ < problem_.prefetch_depth &&
           position < static_cast<int64_t>(trace_.size())) {
      const Access& access = trace_[static_cast<size_t>(position)];
      const size_t chunk = access.chunk.index();
      if (access.kind != AccessKind::kUse || resident_[chunk] ||
          problem_.param_class[chunk] == kNoSlotClass) {
        ++position;
        if (all_there) scan_ = position;
        continue;
      }
      all_there = false;
      const int32_t slot_class = problem_.param_class[chunk];
      if (!StaysFree(slot_class, std::max<int64_t>(moment, 0), position)) break;
      if (free_[Index(slot_class)] == 0) {
        const ChunkId victim = Victim(slot_class, moment + 1, position);
        if (!victim.valid()) break;
        Release(victim, RunCause::kRoom, moment + 1);
      }
      MakeResident(access.chunk);
      moves_->push_back({MoveKind::kGather, RunCause::kPrefetch, access.chunk});
      waiting_[chunk] = true;
      ++waiting_count_;
      for (int64_t j = std::max<int64_t>(moment, 0); j < position; ++j) {
        ++reserved_[Index(slot_class)][static_cast<size_t>(j)];
      }
      ++position;
    }
  }

  const Trace& trace_;
  const PlanProblem& problem_;
  PinnedCounts pinned_;
  std::vector<std::vector<int64_t>> uses_;  // by chunk, moments of kUse
  std::vector<bool> resident_;
  std::vector<bool> waiting_;  // gathered ahead, not used yet
  std::vector<int> pins_;
  std::vector<size_t> next_;                    // by chunk, cursor into uses_
  std::vector<int64_t> free_;                   // by class
  std::vector<std::vector<int64_t>> reserved_;  // by class and moment
  int waiting_count_ = 0;
  int64_t scan_ = 0;  // every use before it has its copy
  std::vector<Move>* moves_ = nullptr;
};

}  // namespace

std::vector<int64_t> PinnedPeaks(const Trace& trace,
                                 const PlanProblem& problem) {
  const PinnedCounts counts(trace, problem);
  std::vector<int64_t> peaks;
  for (size_t c = 0; c < problem.slots.size(); ++c) {
    peaks.push_back(counts.peak(c));
  }
  return peaks;
}

Result<Plan> PlanNextUse(const Trace& trace, const PlanProblem& problem) {
  Planner planner(trace, problem);
  CASTOR_RETURN_IF_ERROR(planner.CheckFeasible());
  std::vector<ChunkId> kept;
  Plan plan;
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    plan = planner.Run(kept);
    std::vector<ChunkId> survivors = planner.Survivors();
    if (survivors == kept) break;
    kept = std::move(survivors);
  }
  return plan;
}

ChunkId FirstStepVictim(std::span<const ChunkId> candidates, ChunkId current,
                        bool forward) {
  CASTOR_CHECK(!candidates.empty());
  ChunkId best;
  int64_t best_distance = -1;
  for (ChunkId candidate : candidates) {
    // Going forward, a chunk behind comes back in the backward sweep, the
    // furthest behind last; going backward, a chunk above comes back in the
    // next step, the nearest above last of the forward sweep.
    const int64_t gap = int64_t{candidate.value()} - current.value();
    constexpr int64_t kSweep = int64_t{1} << 32;
    const int64_t distance = forward ? (gap > 0 ? gap : kSweep - gap)
                                     : (gap < 0 ? -gap : kSweep + gap);
    if (distance > best_distance ||
        (distance == best_distance && candidate < best)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace castor
