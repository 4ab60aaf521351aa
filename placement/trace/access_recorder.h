// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TRACE_ACCESS_RECORDER_H_
#define CASTOR_PLACEMENT_TRACE_ACCESS_RECORDER_H_

// What a trainer does with parameters, turned into the accesses to chunks that
// the engine records when the trainer does it: a chunk is used once per hold,
// however many of its parameters are held; its gradient is open from the first
// of its parameters' gradients to the last, or to the end of the micro-batch
// where some parameter of it has none; where gradients of micro-batches are
// added up before they are reduced, from the first micro-batch that has one to
// the last; where it is written over the parameters, the chunk is used as long.
// It holds no memory and runs nothing, so
// that a step is known before it is made. The calls are those of
// collectives/zero_engine.h and mean the same. Thread-compatible.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "placement/trace/reduction_turns.h"
#include "placement/trace/step_trace.h"

namespace castor {

class AccessRecorder {
 public:
  // `layout` must outlive this. `whole_grads`: gradients are added up over
  // micro-batches, whole, and reduced once. `in_place`: they are written over
  // the parameters.
  explicit AccessRecorder(const ChunkLayout* layout, bool whole_grads = false,
                          bool in_place = false);

  // As several ranks do it that all keep whole parameters: chunks take turns.
  // `had` as there (reduction_turns.h). From there on every step begins with
  // BeginMicroBatch.
  void TakeTurns(const std::vector<bool>& had = {}) {
    turns_ = ReductionTurns(*layout_, had);
  }

  // Ends the micro-batch before, if any. `last`: no other follows, which
  // matters to whole gradients only.
  void BeginMicroBatch(bool last = true);

  // As Acquire; returns what Release takes. Holds may overlap.
  int Hold(std::span<const ParamId> params);
  void Release(int hold);

  // As Grad and GradReady. A gradient may be opened several times before it is
  // ready. REQUIRES: a trainable parameter, not ready in this micro-batch; open
  // when it becomes ready.
  void OpenGrad(ParamId param);
  void GradReady(ParamId param);

  // As Evaluate and the end of its scope: what is held in between is a pass of
  // its own. REQUIRES: no evaluation is open, or one is; what it holds is
  // released in it.
  void BeginEvaluation();
  void EndEvaluation();

  // From here on the trainer has so many bytes of its own on the device.
  void SetLeased(Bytes bytes);
  // Computes for so long with what it holds now. REQUIRES: ns >= 0.
  void Compute(int64_t ns);

  // As Step: ends the last micro-batch. Compute times are in it where any was
  // told. Parameters without a gradient have no names. REQUIRES: nothing is
  // held. The recorder begins anew.
  StepTrace Finish();

 private:
  enum class Gradient : uint8_t { kIdle, kOpen, kReady };

  // What Hold returned, until it is released.
  struct Held {
    std::vector<ChunkId> chunks;
    bool evaluating = false;  // it began in the evaluation that is open
  };

  void Add(AccessKind kind, ChunkId chunk);
  void OpenChunk(ChunkId chunk);
  void CloseGrad(ChunkId chunk);
  // To the step, or to the pass that is open.
  void AddUse(AccessKind kind, ChunkId chunk, bool evaluating);
  void CloseInTurn();
  void CloseGrads();
  void EndMicroBatch();

  // Whether a gradient that is complete in this micro-batch is reduced.
  bool Reduces() const { return !whole_grads_ || last_micro_batch_; }

  const ChunkLayout* layout_;
  const bool whole_grads_;
  const bool in_place_;
  bool last_micro_batch_ = false;
  ReductionTurns turns_;
  bool in_micro_batch_ = false;
  StepTrace trace_;
  std::vector<Bytes> leased_;  // the most at each moment
  Bytes leased_now_;
  Bytes leased_before_;  // the most before the first access
  bool timed_ = false;
  int64_t compute_before_ = 0;                // before the first access
  std::optional<EvaluationPass> evaluation_;  // that is open
  // By what Hold returned; empty once released.
  std::vector<std::optional<Held>> holds_;
  std::vector<Gradient> gradients_;   // by ParamId, of this micro-batch
  std::vector<bool> had_grad_;        // by ParamId, in this step
  std::vector<bool> open_;            // by ChunkId, its gradient
  std::vector<int64_t> params_left_;  // of it, in this micro-batch; or 0
  int64_t holds_made_ = 0;
  std::vector<int64_t> last_hold_;  // by ChunkId, counted from 1
};

}  // namespace castor

#endif  // CASTOR_PLACEMENT_TRACE_ACCESS_RECORDER_H_
