// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/next_use_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "placement/trace_pins.h"

namespace castor {
namespace {

using internal::CheckTrace;
using internal::Index;
using internal::PinnedCounts;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// A step whose end state is its start state is usually found at once; a plan is
// valid without it, so the search for one is short.
constexpr int kMaxPasses = 4;

// Serves the trace on demand first, which fetches least, then moves fetches
// ahead into the time in which their slot lies idle, which fetches no more.
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

  // One step that begins with the copies `kept`.
  Plan Run(const std::vector<ChunkId>& kept) {
    slots_.clear();
    for (int64_t count : problem_.slots) {
      slots_.emplace_back(static_cast<size_t>(count));
    }
    at_.assign(uses_.size(), nullptr);
    grad_at_.assign(uses_.size(), nullptr);
    pins_.assign(uses_.size(), 0);
    dropped_at_.assign(uses_.size(), -1);
    next_.assign(uses_.size(), 0);
    fetches_.clear();
    releases_.clear();
    for (ChunkId chunk : kept) {
      SimSlot& slot = *FreeSlot(problem_.param_class[chunk.index()]);
      slot.copy = chunk;
      at_[chunk.index()] = &slot;
    }
    for (size_t i = 0; i < trace_.size(); ++i) {
      Serve(static_cast<int64_t>(i));
    }
    return Schedule(kept);
  }

  // Copies still valid after the step, once Run is done.
  std::vector<ChunkId> Survivors() const {
    std::vector<ChunkId> survivors;
    for (size_t c = 0; c < at_.size(); ++c) {
      if (at_[c] != nullptr && problem_.survives_step[c]) {
        survivors.push_back(ChunkId(static_cast<int32_t>(c)));
      }
    }
    return survivors;
  }

 private:
  struct SimSlot {
    ChunkId copy;             // not valid: no copy
    bool grad = false;        // holds an open gradient
    int64_t idle_since = -1;  // moment of its last access; -1: none yet
  };

  struct Fetch {
    ChunkId chunk;
    ChunkId victim;   // dropped for it; not valid: the slot was free
    int64_t use = 0;  // moment that needs it
    // The access after which it may begin: the last one of its slot, or the one
    // whose gradient took the place of the chunk's copy before.
    int64_t not_before = -1;
  };

  struct Drop {
    ChunkId chunk;
    int64_t moment = 0;  // of the gradient it makes room for
  };

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

  // The free slot that has been idle longest; null when there is none.
  SimSlot* FreeSlot(int32_t slot_class) {
    SimSlot* best = nullptr;
    for (SimSlot& slot : slots_[Index(slot_class)]) {
      if (slot.copy.valid() || slot.grad) continue;
      if (best == nullptr || slot.idle_since < best->idle_since) best = &slot;
    }
    return best;
  }

  // The slot of the unpinned copy that is used furthest away for its cost;
  // among copies never used again, the one idle longest.
  SimSlot* VictimSlot(int32_t slot_class, int64_t moment) {
    SimSlot* best = nullptr;
    double best_score = -1;
    for (SimSlot& slot : slots_[Index(slot_class)]) {
      if (!slot.copy.valid() || pins_[slot.copy.index()] > 0) continue;
      const int64_t next = NextUse(slot.copy.index(), moment);
      const double score = next == kNever
                               ? std::numeric_limits<double>::infinity()
                               : static_cast<double>(next - moment) /
                                     problem_.fetch_cost[slot.copy.index()];
      if (score > best_score ||
          (score == best_score && slot.idle_since < best->idle_since)) {
        best_score = score;
        best = &slot;
      }
    }
    return best;
  }

  // A slot without a copy; the copy that was dropped for it, if any, is told.
  SimSlot& TakeSlot(int32_t slot_class, int64_t moment, ChunkId* victim) {
    if (SimSlot* free = FreeSlot(slot_class); free != nullptr) return *free;
    SimSlot* slot = VictimSlot(slot_class, moment);
    CASTOR_CHECK(slot != nullptr);  // CheckFeasible
    *victim = slot->copy;
    at_[slot->copy.index()] = nullptr;
    slot->copy = ChunkId();
    return *slot;
  }

  void Serve(int64_t moment) {
    const ChunkId id = trace_[static_cast<size_t>(moment)].chunk;
    const size_t chunk = id.index();
    switch (trace_[static_cast<size_t>(moment)].kind) {
      case AccessKind::kUse:
        if (problem_.param_class[chunk] == kNoSlotClass) return;
        if (at_[chunk] == nullptr) {
          Fetch fetch{id, ChunkId(), moment, -1};
          SimSlot& slot =
              TakeSlot(problem_.param_class[chunk], moment, &fetch.victim);
          fetch.not_before = std::max(slot.idle_since, dropped_at_[chunk]);
          slot.copy = id;
          at_[chunk] = &slot;
          fetches_.push_back(fetch);
        }
        ++pins_[chunk];
        at_[chunk]->idle_since = moment;
        return;
      case AccessKind::kUseEnd:
        if (problem_.param_class[chunk] == kNoSlotClass) return;
        --pins_[chunk];
        at_[chunk]->idle_since = moment;
        return;
      case AccessKind::kGradOpen: {
        Drop drop{ChunkId(), moment};
        SimSlot& slot =
            TakeSlot(problem_.grad_class[chunk], moment, &drop.chunk);
        if (drop.chunk.valid()) {
          releases_.push_back(drop);
          dropped_at_[drop.chunk.index()] = moment;
        }
        slot.grad = true;
        grad_at_[chunk] = &slot;
        return;
      }
      case AccessKind::kGradClose:
        grad_at_[chunk]->grad = false;
        grad_at_[chunk]->idle_since = moment;
        grad_at_[chunk] = nullptr;
        return;
    }
  }

  // Gives every fetch its place: after the access that left its slot idle, but
  // no more than prefetch_depth before their use at one time, and in the order
  // of use; where that is not ahead of the use, on demand.
  Plan Schedule(const std::vector<ChunkId>& kept) const {
    Plan plan;
    plan.initial = kept;
    std::vector<std::vector<Move>> slices(2 * trace_.size());
    const auto add = [&](size_t slice, const Fetch& fetch, RunCause cause) {
      if (fetch.victim.valid()) {
        slices[slice].push_back(
            {MoveKind::kRelease, RunCause::kRoom, fetch.victim});
      }
      slices[slice].push_back({MoveKind::kGather, cause, fetch.chunk});
    };
    const size_t depth = static_cast<size_t>(problem_.prefetch_depth);
    int64_t issued = -1;
    for (size_t j = 0; j < fetches_.size(); ++j) {
      const Fetch& fetch = fetches_[j];
      int64_t issue = std::max(issued, fetch.not_before);
      if (fetch.victim.valid()) issue = std::max<int64_t>(issue, 0);
      if (j >= depth && depth > 0) {
        issue = std::max(issue, fetches_[j - depth].use);
      }
      if (depth == 0 || issue + 1 >= fetch.use + (fetch.use == 0)) {
        add(static_cast<size_t>(2 * fetch.use), fetch, RunCause::kDemand);
        issued = fetch.use;
        continue;
      }
      issued = issue;
      if (issue < 0) {
        plan.initial.push_back(fetch.chunk);
      } else {
        add(static_cast<size_t>(2 * issue + 1), fetch, RunCause::kPrefetch);
      }
    }
    for (const Drop& drop : releases_) {
      slices[static_cast<size_t>(2 * drop.moment)].push_back(
          {MoveKind::kRelease, RunCause::kRoom, drop.chunk});
    }
    for (const std::vector<Move>& slice : slices) {
      plan.first_move.push_back(static_cast<int32_t>(plan.moves.size()));
      plan.moves.insert(plan.moves.end(), slice.begin(), slice.end());
    }
    plan.first_move.push_back(static_cast<int32_t>(plan.moves.size()));
    return plan;
  }

  const Trace& trace_;
  const PlanProblem& problem_;
  PinnedCounts pinned_;
  std::vector<std::vector<int64_t>> uses_;   // by chunk, moments of kUse
  std::vector<std::vector<SimSlot>> slots_;  // by class; never resized in a run
  std::vector<SimSlot*> at_;                 // by chunk, of its copy
  std::vector<SimSlot*> grad_at_;            // by chunk, of its gradient
  std::vector<int> pins_;
  std::vector<int64_t> dropped_at_;  // by chunk, for a gradient
  std::vector<size_t> next_;         // by chunk, cursor into uses_
  std::vector<Fetch> fetches_;
  std::vector<Drop> releases_;
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
  CASTOR_RETURN_IF_ERROR(CheckTrace(trace, problem));
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

}  // namespace castor
