// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_COPY_REPLAY_H_
#define CASTOR_PLACEMENT_COPY_REPLAY_H_

// Which chunks a run makes whole, and how many slots it holds at most, known
// without a run: the moves of offload/memory_manager.h, access by access, on
// slots that are only counted. A first step, which has no plan, is served on
// demand and drops what FirstStepVictim says; later ones follow their plan.
// Thread-compatible.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "placement/plan.h"
#include "placement/trace.h"

namespace castor {

class CopyReplay {
 public:
  // `slot_bytes` by class of the problem; the problem outlives this.
  CopyReplay(const PlanProblem& problem, std::vector<Bytes> slot_bytes);

  // One step, from its first access to the moment before the next one's, which
  // begins with what its plan wants to be there. `plan` null: on demand.
  // `refreshed`: the chunks that take a slot each, one after the other, once
  // the step is over. REQUIRES: the trace is one of a step and no class has
  // fewer slots than it pins; the plan is valid for both.
  void Step(const Trace& trace, const Plan* plan,
            std::span<const ChunkId> refreshed);
  // What a plan wants to be there when its step begins: done by Step for the
  // plan it was given, and to be called where the next step has another one.
  void Begin(const Plan& plan);

  struct Counts {
    std::vector<int64_t> gathers;  // by ChunkId
    std::vector<int64_t> loads;    // of what this rank keeps of it, from home
  };
  // Since the last call, or the start.
  Counts TakeCounts();
  // Of these slots together, since the start.
  Bytes peak_bytes() const { return peak_; }

 private:
  struct Copy {
    bool there = false;
    int pins = 0;
    bool shard = false;  // there is a copy of its shard
  };

  void Serve(const Access& access);
  void MakeMoves(const Plan& plan, size_t slice);
  void Gather(ChunkId chunk);
  void FetchShard(ChunkId chunk);
  void DropShards(const std::vector<bool>& kept);
  void Drop(ChunkId chunk);
  void TakeSlot(int32_t slot_class, ChunkId wanted_for);
  void GiveSlot(int32_t slot_class);

  const PlanProblem& problem_;
  const std::vector<Bytes> slot_bytes_;
  std::vector<Copy> copies_;          // by ChunkId
  std::vector<int64_t> free_;         // by class
  std::vector<int64_t> shard_slots_;  // by class: that hold shards
  Counts counts_;
  std::vector<ChunkId> candidates_;  // scratch of TakeSlot
  ChunkId last_used_;
  bool forward_ = true;
  Bytes in_use_;
  Bytes peak_;
};

}  // namespace castor

#endif  // CASTOR_PLACEMENT_COPY_REPLAY_H_
