// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_GRADIENTS_LATE_GRADIENTS_H_
#define CASTOR_COLLECTIVES_ENGINE_GRADIENTS_LATE_GRADIENTS_H_

// When a chunk's gradient is reduced, where ranks may lack gradients that
// others have: this is where a gradient waits for other ranks. Its slot stays
// open in GradientReducer until then. ZeroEngine asks before each use of a
// chunk, each end of one that is planned and each gradient. All ranks then call
// GradientReducer in the same order.
//
// Ranks that keep whole parameters take turns
// (placement/trace/reduction_turns.h).
//
// Where parameters are sharded, a rank that lacks a gradient opens it, as
// zeros, and reduces it where the plan has that (late_gradients.cc). What is
// done where there is no plan: waiting_gradients.cc. Owner thread only.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/engine/engine_base.h"
#include "collectives/engine/gradients/gradient_reducer.h"
#include "collectives/engine/rank_words.h"
#include "collectives/zero_options.h"
#include "offload/memory_manager.h"
#include "placement/trace.h"
#include "placement/trace/reduction_turns.h"

namespace castor::internal {

class LateGradients {
 public:
  LateGradients(EngineBase& base, GradientReducer& reducer)
      : model_(base.model),
        memory_(base.memory),
        progress_(base.progress),
        health_(base.health),
        words_(base),
        reducer_(reducer) {}

  // Of what is declared, in memory that is planned.
  void Begin(const SealOptions& declared);
  // What Begin found, so that it can be had again.
  struct Rules {
    ReductionTurns turns;  // none where chunks are reduced as they complete
    // Ranks that lack gradients follow the plan of those that have them.
    bool follows_plan = false;
    // By ChunkId, whose gradients wait for the flush where the step is not as
    // planned; empty: none do.
    std::vector<bool> to_flush;
  };
  const Rules& rules() const { return rules_; }
  void GoBackTo(Rules rules) { rules_ = std::move(rules); }

  void BeginStep();
  void BeginMicroBatch() { rules_.turns.BeginMicroBatch(); }
  // Before a use, an end of one, or an evaluation: makes the accesses to
  // gradients that the plan has before that, zeros where this rank has none.
  void FollowPlan() { Follow(std::nullopt, false); }
  // The chunk's first gradient comes: takes its slot.
  Status TakeSlot(ChunkId chunk);
  // The chunk's gradients are handed back: it is reduced when its turn comes.
  void Complete(ChunkId chunk);
  // Queues reductions that wait, so that their slots come free. False where
  // none waits.
  bool MakeRoom();
  // Nothing more is handed back in this micro-batch: reduces what is left.
  Status Flush();
  // So that all ranks have made the same reductions in a step that is dropped.
  Status Abandon();

  // In which order chunks are reduced in the next step, as this rank has it and
  // as ranks agree on; empty where they take no turns.
  std::vector<ChunkId> ProposedOrder() const { return rules_.turns.Proposed(); }
  void Adopt(std::vector<ChunkId> order) {
    rules_.turns.Adopt(std::move(order));
  }

 private:
  // Of a Position, for what happens between two accesses.
  static constexpr int kPositionBits = 24;
  // Of a gradient that waits for the flush, in the order of Position: when it
  // was opened, 0 where the trace has that, and when complete, 0 before.
  struct Positions {
    uint64_t opened_at = 0;
    uint64_t complete_at = 0;
  };

  // `by_plan`: before the flush, so that more of it may come.
  void Reduce(ChunkId chunk, bool by_plan = false);
  void ReduceInTurn();
  // As Flush, in turn: zeros where this rank has no gradient.
  Status FlushTurns();
  // Opens the chunk's gradient, of which this rank has none.
  Status OpenZeros(ChunkId chunk);
  Status OpenSlot(ChunkId chunk);
  // `flush`: nothing more is handed back in this micro-batch.
  void Follow(std::optional<Access> until, bool flush);
  // False: the plan has to wait.
  bool Make(const Access& access, bool flush);

  // Finds whose gradients wait for the flush where there is no plan.
  void SetUpWaiting(const SealOptions& declared);
  // Where the step is not as planned, all reductions wait for the flush: ranks
  // then agree on them. Only where the trainer declares that it may be so.
  bool WaitsForFlush() const;
  // Orders what happens to gradients among the accesses of the step.
  uint64_t Position();
  // Whether it is the next access to a gradient, before any use.
  bool PlannedNext(const Access& grad) const;
  // Reduces what waits, in the order of chunks, zeros where only others have
  // it. Puts the accesses that the step has when it is planned into the trace,
  // the same on all ranks.
  Status FlushWaiting();
  // Two words of each chunk, of which the greatest of any rank counts: when its
  // gradient was complete, and how long before the end of time opened.
  Result<std::vector<uint64_t>> AgreeOnWaiting();
  // These accesses, out of what ranks agreed on.
  std::vector<LateAccess> AccessesToInsert(
      const std::vector<uint64_t>& agreed) const;

  const EngineModel& model_;
  EngineMemory& memory_;
  const StepProgress& progress_;
  EngineHealth& health_;
  const RankWords words_;
  GradientReducer& reducer_;
  Rules rules_;
  std::vector<Positions> positions_;  // by ChunkId
  size_t flushed_at_ = 0;  // accesses before the last flush of the step
  uint64_t events_ = 0;    // since then
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_GRADIENTS_LATE_GRADIENTS_H_
