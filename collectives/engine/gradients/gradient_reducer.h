// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_GRADIENTS_GRADIENT_REDUCER_H_
#define CASTOR_COLLECTIVES_ENGINE_GRADIENTS_GRADIENT_REDUCER_H_

// Gradients on their way home. A chunk's slot is open from its first gradient
// on. One reduce-scatter a chunk makes the sum of all ranks, which is deposited
// or updates at once. Only this class opens and closes gradients in the memory
// manager. LateGradients says when a chunk is reduced. Owner thread only.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_state.h"
#include "collectives/engine/engine_base.h"
#include "collectives/engine/gradients/chunk_grad.h"
#include "collectives/engine/gradients/gradient_norm.h"
#include "collectives/engine/gradients/optimizer_pass.h"
#include "collectives/engine/gradients/overwritten_params.h"
#include "collectives/engine/memory/home_passes.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"

namespace castor::internal {

class GradientReducer {
 public:
  GradientReducer(EngineBase& base, HomePasses& passes, GradientNorm& norm,
                  OptimizerPass& optimizer)
      : model_(base.model),
        memory_(base.memory),
        lanes_(base.lanes),
        progress_(base.progress),
        record_(base.record),
        passes_(passes),
        norm_(norm),
        optimizer_(optimizer),
        overwritten_(base.model, base.memory, base.progress) {}

  void Begin();
  const ChunkGrad& of(ChunkId chunk) const { return grads_[chunk.index()]; }
  std::vector<ChunkId> open() const;
  std::vector<ChunkId> valid() const;

  // Whether the parameter may have a gradient now.
  Status CheckOpens(ParamId param) const;
  // Takes the slot of the chunk's gradient, in the trace or not.
  Status TakeSlot(ChunkId chunk, bool traced);
  // Of a chunk with a slot, for work on `lane`; null without elements.
  Result<std::byte*> Open(ParamId param, Lane& lane);
  // The same of a chunk of which this rank has no gradient: zeros.
  void OpenZeros(ChunkId chunk);
  // True: the chunk's gradients are all handed back, and reduced this time.
  Result<bool> HandBack(ParamId param, Lane& lane);
  // Reduces the chunk behind what lanes have written so far.
  void WaitForWriters(ChunkId chunk);
  // Whether a parameter's gradient may still be written to.
  bool being_written(ChunkId chunk) const;
  // Whether a chunk whose gradients are handed back is reduced now.
  bool reduces() const {
    return progress_.last_micro_batch ||
           model_.options.accumulation == AccumulationOrder::kEach;
  }
  void Reduce(ChunkId chunk, Reduction how);
  void EndMicroBatch();
  void BeginStep() { reduced_in_step_ = 0; }
  void EndStep();
  // Drops the step: gradients chunk by chunk, then what parameters had.
  void Abandon(ChunkId chunk, bool traced);
  void ForgetStep();
  // Work on what is open is over.
  void Close();

  // Of an engine that borrows: gradients that stay where the trainer has them.
  Status Borrow(std::span<const ParamId> params,
                std::span<std::byte* const> grads, Lane& lane);

  const OverwrittenParams& overwritten() const { return overwritten_; }
  // Of parameters that gradients were written over and no update wrote.
  void RestoreLostHomes();

  int64_t reduce_scatters() const { return reduce_scatters_; }
  Bytes copies() const { return copies_; }

 private:
  // All ranks' sum of what is in the slot once that is ready.
  PassingGrad SumOverRanks(ChunkId chunk, const Event& ready);
  Result<ParamState> Next(ParamId param, ParamEvent event) const;
  // Opens it for a lane, behind what other lanes and micro-batches add.
  void OpenFor(ChunkId chunk, Lane& lane);
  Bytes SlotBytes(ChunkId chunk) const;
  // From device memory to its home, `first` or added there. Returns when that
  // memory may be reused.
  Event Deposit(ChunkId chunk, const PassingGrad& reduced, bool first);

  const EngineModel& model_;
  EngineMemory& memory_;
  const EngineLanes& lanes_;
  StepProgress& progress_;
  const EngineRecord& record_;
  HomePasses& passes_;
  GradientNorm& norm_;
  OptimizerPass& optimizer_;
  OverwrittenParams overwritten_;
  std::vector<ChunkGrad> grads_;  // by ChunkId
  int64_t reduce_scatters_ = 0;
  int64_t reduced_in_step_ = 0;  // chunks, each counted as often as reduced
  Bytes copies_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_GRADIENTS_GRADIENT_REDUCER_H_
