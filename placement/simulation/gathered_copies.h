// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_SIMULATION_GATHERED_COPIES_H_
#define CASTOR_PLACEMENT_SIMULATION_GATHERED_COPIES_H_

// The gathered slots of a simulated rank and what is in them: served by the
// plan, and on demand in the first step, where a step departs from the plan and
// in evaluations, as offload/memory_manager.h does it. Owner thread only.

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/simulated_engine.h"
#include "placement/simulation/event_loop.h"
#include "placement/simulation/sim_lane.h"
#include "placement/simulation_result.h"
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
  struct Slot {
    int32_t slot_class = -1;
    int32_t index = -1;
    SimEvent free_after;  // its previous user's last event
  };
  struct Counts {
    int64_t gathers = 0;
    int64_t fetches = 0;  // homes read for these, or for copies of shards
    int64_t prefetched = 0;
    int64_t cancelled = 0;  // of these, taken back before they began
    int64_t releases = 0;
    int64_t divergences = 0;
    std::array<SimulatedStall, kRunCauses> stalls;  // by RunCause
  };

  // All outlive it, and it all that it queued.
  GatheredCopies(EventLoop* loop, const SimulatedEngine* engine,
                 CopySource* source);

  // As if a step of this trace had been planned so: the next one follows the
  // plan. To be called before the first step, and followed by BeginStep.
  void Adopt(const Trace& trace, const Plan& plan);

  // Accesses of the step, in order. Infeasible where all slots are held.
  Status Acquire(ChunkId chunk, SimLane& lane);
  void EndUse(ChunkId chunk, SimLane& lane);
  Result<Slot> OpenGrad(ChunkId chunk, SimLane& lane);
  void CloseGrad(ChunkId chunk, const Slot& slot, SimEvent free_after);

  // Uses between the two are neither of the step nor of its plan.
  void BeginEvaluation();
  void EndEvaluation();

  // For work between steps.
  Result<Slot> Borrow(ChunkId chunk);
  void Return(const Slot& slot, SimEvent free_after);

  // Plans anew where the step was not the one that was planned, and drops what
  // is stale.
  Status EndStep();
  void BeginStep();

  // The most that was in slots at one time.
  Bytes peak() const { return peak_; }
  const Counts& counts() const { return counts_; }

 private:
  struct Copy {
    bool there = false;
    Slot slot;
    SimEvent ready;
    RunCause cause = RunCause::kNone;
    int pins = 0;
    bool used = false;
    std::vector<SimEvent> users;
    // Of its shard: the place that a copy of it has, -1: none; since when that
    // is there, and until when it is used.
    int32_t place = -1;
    SimEvent shard_ready;
    SimEvent shard_busy;
  };
  // Slots that hold shards, as offload/shard_places.h has them.
  struct Places {
    std::vector<Slot> slots;
    std::vector<ChunkId> holds;        // by place; not valid: free
    std::vector<SimEvent> free_after;  // by place
  };
  struct SlotClass {
    std::deque<int32_t> free;  // the one that has been for longest first
    std::vector<SimEvent> free_after;
  };

  int32_t param_class(ChunkId chunk) const {
    return engine_->problem.param_class[chunk.index()];
  }
  // Whether its gradient is written over its parameters.
  bool InPlace(ChunkId chunk) const {
    return engine_->problem.grad_class[chunk.index()] == kNoSlotClass;
  }
  // The next access begins, or has been served.
  void Begin(AccessKind kind, ChunkId chunk);
  void Served();
  // What was fetched ahead for a plan that no longer holds goes, but for the
  // chunk that is wanted now.
  void DropUnusedPrefetches(ChunkId wanted);
  void MakeMoves(size_t slice);
  Result<Slot> TakeSlot(int32_t slot_class, ChunkId wanted_for);
  // REQUIRES: one is free.
  Slot TakeFree(int32_t slot_class);
  bool DropOne(int32_t slot_class, ChunkId wanted_for);
  Status Gather(ChunkId chunk, RunCause cause);
  void Drop(ChunkId chunk);
  void HoldShards(size_t slot_class, int64_t slots);
  bool GiveShardSlot(size_t slot_class);
  void FetchShard(ChunkId chunk, RunCause cause);
  void DropShard(ChunkId chunk);
  void WaitOn(SimLane& lane, const SimEvent& ready, RunCause cause);

  EventLoop* const loop_;
  const SimulatedEngine* const engine_;
  CopySource* const source_;
  std::vector<Copy> copies_;  // by ChunkId
  std::vector<SlotClass> classes_;
  std::vector<Places> places_;  // by class
  Trace trace_;                 // of this step, so far
  Trace planned_trace_;
  std::optional<Plan> plan_;
  std::vector<bool> initial_;         // by ChunkId
  std::vector<bool> initial_shards_;  // by ChunkId
  bool diverged_ = false;
  bool evaluating_ = false;
  std::vector<bool> before_evaluation_;  // by ChunkId: there was a copy
  ChunkId last_used_;
  bool forward_ = true;
  Bytes in_use_;
  Bytes peak_;
  Counts counts_;
};

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_SIMULATION_GATHERED_COPIES_H_
