// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_SIMULATION_GATHERED_COPIES_H_
#define CASTOR_PLACEMENT_SIMULATION_GATHERED_COPIES_H_

// The gathered slots of a rank and their chunks, without memory: the moves of
// offload/memory_manager.h, access by access. The plan's moves are made where a
// plan holds. The first step, departures and evaluations are served on demand.
// A CopySource makes each move and says when the move is over; no decision
// depends on that time. Owner thread only.

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/simulation/shard_places.h"
#include "placement/timeline/event_loop.h"
#include "placement/timeline/slot_pool.h"
#include "placement/trace.h"

namespace castor::internal {

// Fills slots.
class CopySource {
 public:
  virtual ~CopySource() = default;
  // Queues what fills a slot that is free after `after`; when it is there.
  virtual SimEvent Gather(ChunkId chunk, const SimEvent& after,
                          RunCause cause) = 0;
  // Queues what brings a copy of its shard to a place that is free after
  // `after`; and what fills a slot from such a copy, there since `ready`.
  virtual SimEvent FetchShard(ChunkId chunk, const SimEvent& after,
                              RunCause cause) = 0;
  virtual SimEvent GatherFrom(const SimEvent& ready, ChunkId chunk,
                              const SimEvent& after) = 0;
  // A chunk whose home is the whole of it on the device.
  virtual SimEvent DirectReady(ChunkId chunk) = 0;
  virtual void DirectUsed(ChunkId chunk, SimEvent last_use) = 0;
  // Somebody waits for what was fetched ahead.
  virtual void Raise(ChunkId chunk) = 0;
  // Whether gathers are nobody's affair but this rank's; then the chunk's last
  // one, which was fetched ahead, is taken back. False where it has begun.
  virtual bool cancellable() const = 0;
  virtual bool Cancel(ChunkId chunk) = 0;
};

class GatheredCopies {
 public:
  // What a lane waits for, and why it may have to.
  struct Ready {
    SimEvent event;
    RunCause cause = RunCause::kNone;
  };
  struct Counts {
    int64_t prefetched_fetches = 0;
    int64_t prefetched = 0;  // gathers
    int64_t cancelled = 0;   // of these, taken back before they began
    int64_t releases = 0;
    int64_t divergences = 0;
  };

  // `slot_bytes` by class of the problem, which outlives it, as the source
  // does.
  GatheredCopies(const PlanProblem* problem, std::span<const Bytes> slot_bytes,
                 CopySource* source);

  // As if a step of this trace had been planned so: the next one follows the
  // plan. To be followed by BeginStep.
  void Adopt(const Trace& trace, const Plan& plan);

  // Accesses of the step, in order: what was asked for, and what else the plan
  // has at that moment. Infeasible where all slots are held.
  Result<Ready> Acquire(ChunkId chunk);
  void EndUse(ChunkId chunk, SimEvent end);
  // A gradient that is written over its parameters takes no slot, and is free
  // when the use around it has ended: Acquire before, EndUse until then.
  Result<SimSlot> OpenGrad(ChunkId chunk);
  void CloseGrad(ChunkId chunk, const SimSlot& slot, SimEvent free_after);

  // Whether its gradient is written over its parameters; then when its copy is
  // there and the uses that ended are done. REQUIRES: it has a slot, and is
  // used.
  bool grad_in_place(ChunkId chunk) const {
    return problem_->grad_class[chunk.index()] == kNoSlotClass;
  }
  SimEvent UsesDone(ChunkId chunk) const;

  // Uses between the two are neither of the step nor of its plan.
  void BeginEvaluation();
  void EndEvaluation();

  // For work between steps.
  Result<SimSlot> Borrow(ChunkId chunk);
  void Return(const SimSlot& slot, SimEvent free_after) {
    pool_.Give(slot, std::move(free_after));
  }

  // Drops what is stale. True where the step was not the one that was planned,
  // or none was: then it is to be planned, and adopted.
  bool EndStep();
  // Brings what the plan wants to be there.
  void BeginStep();

  // The most that was in slots at one time.
  Bytes peak() const { return pool_.peak(); }
  const Counts& counts() const { return counts_; }

 private:
  struct Copy {
    bool there = false;
    SimSlot slot;
    SimEvent ready;
    RunCause cause = RunCause::kNone;
    int pins = 0;
    bool used = false;
    bool from_shard = false;
    std::vector<SimEvent> users;
  };

  int32_t param_class(ChunkId chunk) const {
    return problem_->param_class[chunk.index()];
  }
  bool planned() const { return plan_.has_value() && !diverged_; }
  // The next access begins, or has been served.
  void Begin(AccessKind kind, ChunkId chunk);
  void Served();
  // What was fetched ahead for a plan that no longer holds goes, but for the
  // chunk that is wanted now.
  void DropUnusedPrefetches(ChunkId wanted);
  void MakeMoves(size_t slice);
  Result<SimSlot> TakeSlot(int32_t slot_class, ChunkId wanted_for);
  bool DropOne(int32_t slot_class, ChunkId wanted_for);
  // Whether a copy is there, and not in use, has changed.
  void NoteIdle(ChunkId chunk);
  Status Gather(ChunkId chunk, RunCause cause);
  void Drop(ChunkId chunk);
  void FetchShard(ChunkId chunk, RunCause cause);
  void CountFetch(RunCause cause) {
    counts_.prefetched_fetches += cause == RunCause::kPrefetch;
  }

  const PlanProblem* const problem_;
  CopySource* const source_;
  SlotPool pool_;
  ShardPlaces shards_;
  std::vector<Copy> copies_;  // by ChunkId
  // By class: copies that are there, and not in use.
  std::vector<std::set<ChunkId>> idle_;
  size_t accesses_ = 0;  // of this step, so far
  Trace planned_trace_;
  std::optional<Plan> plan_;
  std::vector<bool> initial_;         // by ChunkId
  std::vector<bool> initial_shards_;  // by ChunkId
  bool diverged_ = false;
  bool evaluating_ = false;
  std::vector<bool> before_evaluation_;  // by ChunkId: there was a copy
  ChunkId last_used_;
  bool forward_ = true;
  Counts counts_;
};

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_SIMULATION_GATHERED_COPIES_H_
