// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_GRADIENTS_STEP_AGREEMENT_H_
#define CASTOR_COLLECTIVES_ENGINE_GRADIENTS_STEP_AGREEMENT_H_

// What ranks agree on at the end of a step, in one reduction of a few words.
// Ranks make the same step, have one norm, know which parameters any rank had a
// gradient of, and in which order chunks are reduced in the next step. Step and
// ClipGradients call it. Owner thread only.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/engine/engine_base.h"
#include "collectives/engine/gradients/gradient_norm.h"
#include "collectives/engine/gradients/gradient_reducer.h"
#include "collectives/engine/gradients/late_gradients.h"
#include "collectives/engine/gradients/optimizer_pass.h"
#include "collectives/engine/rank_words.h"

namespace castor::internal {

class StepAgreement {
 public:
  StepAgreement(EngineBase& base, GradientNorm& norm,
                const GradientReducer& reducer, LateGradients& late,
                const OptimizerPass& optimizer)
      : model_(base.model),
        memory_(base.memory),
        lanes_(base.lanes),
        progress_(base.progress),
        scalars_(base.scalars),
        record_(base.record),
        health_(base.health),
        words_(base),
        norm_(norm),
        reducer_(reducer),
        late_(late),
        optimizer_(optimizer) {}

  // Of a step with this rate, whose gradients are all reduced. Blocks.
  Result<NormOfStep> Agree(double lr);
  // The norm alone.
  Result<NormOfStep> AgreeOnNorm();

 private:
  // A hash and its square, behind what is agreed on; whether what has been
  // added up at `at` is of equal ones.
  void PutHash(uint64_t hash);
  bool SameHash(size_t at) const;
  // What must be the same, and what may differ.
  void PutStep(double lr, const std::vector<ChunkId>& order);
  // How many ranks had a gradient of each parameter, as many counts to a word
  // as fit; and rank 0's order.
  Status AgreeOnGradients(std::vector<ChunkId>& order);

  const EngineModel& model_;
  const EngineMemory& memory_;
  const EngineLanes& lanes_;
  StepProgress& progress_;
  const TrainingScalars& scalars_;
  const EngineRecord& record_;
  EngineHealth& health_;
  const RankWords words_;
  GradientNorm& norm_;
  const GradientReducer& reducer_;
  LateGradients& late_;
  const OptimizerPass& optimizer_;
  std::vector<uint64_t> agreed_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_GRADIENTS_STEP_AGREEMENT_H_
