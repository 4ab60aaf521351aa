// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_GRADIENTS_OPTIMIZER_PASS_H_
#define CASTOR_COLLECTIVES_ENGINE_GRADIENTS_OPTIMIZER_PASS_H_

// The optimizer's update of what this rank keeps of each chunk, where the
// chunk's states live. Updates are made at Step, or, where the trainer allows
// that, as soon as a chunk's gradient is reduced. Gradients and Step call it.
// It queues passes, and gathers for the copies of other ranks. Owner thread
// only.

#include <cstdint>
#include <memory>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/chunk_layout.h"
#include "collectives/custom_update.h"
#include "collectives/engine/engine_base.h"
#include "collectives/engine/gradients/early_updates.h"
#include "collectives/engine/gradients/update_guesses.h"
#include "collectives/engine/gradients/update_work.h"
#include "collectives/engine/memory/home_passes.h"
#include "collectives/engine/params/param_gathers.h"
#include "offload/lanes/event.h"

namespace castor::internal {

// How the updates of a step went.
struct StepUpdates {
  Status skipped;  // of a program, whose first call changed nothing
  Event written;   // StepResult::written
};

class OptimizerPass {
 public:
  OptimizerPass(EngineBase& base, HomePasses& passes, ParamGathers& gathers)
      : model_(base.model),
        memory_(base.memory),
        lanes_(base.lanes),
        progress_(base.progress),
        scalars_(base.scalars),
        health_(base.health),
        passes_(passes),
        gathers_(gathers),
        early_(base.model, base.progress),
        guesses_(base) {}

  // A custom optimizer's.
  Status SetUpdate(UpdateFunction update);
  Status RequireUpdate() const;

  // What gradients are multiplied by before they are clipped: undoes the loss
  // scale and averages over ranks and micro-batches.
  double AveragingFactor() const;
  // Updates all of these chunks that were not updated early, in the order of
  // their next use, and refreshes copies. Waits for a program's calls alone: a
  // failure of the first of them, before anything changed, is in `made`.
  Status UpdateAll(const std::vector<ChunkId>& with_gradient, float factor,
                   double lr, StepUpdates* made);

  EarlyUpdates& early() { return early_; }
  const EarlyUpdates& early() const { return early_; }
  // Whether all parameters of the chunk have a gradient here, and none is read
  // in place. Ranks then update the chunk without asking each other.
  bool MayUpdateNow(ChunkId chunk) const;
  // Updates a reduced chunk before Step. `passing`: with a gradient that does
  // not go home. Returns when that may be reused.
  Event UpdateNow(ChunkId chunk, const PassingGrad* passing = nullptr);
  // When those of the step before are over.
  const Event& updates_before() const { return updates_before_; }

  // Updates before the norm is known.
  UpdateGuesses& guesses() { return guesses_; }
  const UpdateGuesses& guesses() const { return guesses_; }
  // Begins the update of a chunk whose gradient is reduced, where that may be
  // guessed and there is room. `passing`: all of the gradient, on its way home;
  // null: some is at home. Returns when what is passing may be reused.
  Event GuessNow(ChunkId chunk, const PassingGrad* passing);
  void EndStep();
  void Abandon();

  // Takes parameters that were lost, and not updated, from their masters.
  void RestoreHome(ChunkId chunk);

 private:
  // `passing` takes the place of the gradient's home. Returns when it may be
  // reused.
  Event Update(ChunkId chunk, float factor, double lr,
               const PassingGrad* passing = nullptr);
  // `ahead`: the update counts as one more than were made.
  bool AllUsed(ChunkId chunk) const;
  HomePass PassOf(ChunkId chunk, float factor, double lr,
                  const PassingGrad* passing, int64_t ahead);
  // When the next step uses the chunk first, counted in chunks of all steps.
  int64_t NextUse(ChunkId chunk, const PassingGrad* passing);
  UpdateWork MakeWork(ChunkId chunk, ShardRange range, float factor, double lr,
                      int64_t ahead) const;
  Status FinishProgramUpdate();

  const EngineModel& model_;
  EngineMemory& memory_;
  const EngineLanes& lanes_;
  const StepProgress& progress_;
  TrainingScalars& scalars_;
  EngineHealth& health_;
  HomePasses& passes_;
  ParamGathers& gathers_;
  EarlyUpdates early_;
  UpdateGuesses guesses_;
  std::shared_ptr<ProgramUpdate> program_update_;  // null: none
  std::vector<int64_t> next_use_;  // by ChunkId; empty: not looked up
  Event updates_before_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_GRADIENTS_OPTIMIZER_PASS_H_
