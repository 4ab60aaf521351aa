// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_GRADIENTS_LATE_GRADIENTS_H_
#define CASTOR_COLLECTIVES_ENGINE_GRADIENTS_LATE_GRADIENTS_H_

// When a chunk's gradient is reduced: a gradient waits here for other ranks,
// which may lack it. Its slot stays open in GradientReducer meanwhile.
// ZeroEngine asks before a use of a chunk, before the planned end of a use, and
// before a gradient. All ranks then call GradientReducer in the same order.
//
// Ranks that keep whole parameters take turns (reduction_turns.h). Where
// parameters are sharded, a rank without a gradient opens zeros, and reduces
// them where the plan has the chunk (late_gradients.cc); in a step without a
// plan gradients wait for its flush (waiting_gradients.cc). Owner thread only.

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

  struct Rules {
    ReductionTurns turns;  // none where chunks are reduced as they complete
    // Ranks that lack gradients follow the plan of those that have them.
    bool follows_plan = false;
    // By ChunkId: waits for the flush of a step that is not as planned.
    std::vector<bool> to_flush;
  };
  // Finds the rules for what is declared. REQUIRES: memory is planned.
  void Begin(const SealOptions& declared);
  const Rules& rules() const { return rules_; }
  void GoBackTo(Rules rules) { rules_ = std::move(rules); }

  void BeginStep();
  void BeginMicroBatch() { rules_.turns.BeginMicroBatch(); }
  // Makes the accesses to gradients that the plan has before a use, before the
  // end of a use or before an evaluation.
  void FollowPlan() { Follow(std::nullopt, false); }
  // The chunk's first gradient comes: takes its slot.
  Status TakeSlot(ChunkId chunk);
  // The chunk's gradients are handed back: it is reduced when its turn comes.
  void Complete(ChunkId chunk);
  // Queues reductions that wait, for their slots. False: none waits.
  bool MakeRoom();
  // Nothing more is handed back in this micro-batch: reduces what is left.
  Status Flush();
  // Drops the step, after the reductions that any rank has made.
  Status Abandon();

  // The order of the next step's reductions; empty where ranks take no turns.
  std::vector<ChunkId> ProposedOrder() const { return rules_.turns.Proposed(); }
  void Adopt(std::vector<ChunkId> order) {
    rules_.turns.Adopt(std::move(order));
  }

 private:
  // Of a gradient that waits for the flush (Position).
  struct Positions {
    uint64_t opened_at = 0;    // 0: the trace has the access
    uint64_t complete_at = 0;  // 0: not yet
  };

  // `by_plan`: before the flush, so that more of it may come.
  void Reduce(ChunkId chunk, bool by_plan = false);
  void ReduceInTurn();
  Status FlushTurns();
  Status OpenZeros(ChunkId chunk);
  Status OpenSlot(ChunkId chunk);
  // `flush`: nothing more is handed back in this micro-batch.
  void Follow(std::optional<Access> until, bool flush);
  // False: the plan has to wait.
  bool Make(const Access& access, bool flush);

  // Steps without a plan (waiting_gradients.cc).
  void SetUpWaiting(const SealOptions& declared);
  bool WaitsForFlush() const;
  uint64_t Position();
  bool PlannedNext(const Access& grad) const;
  Status FlushWaiting();
  Result<std::vector<uint64_t>> AgreeOnWaiting();
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
