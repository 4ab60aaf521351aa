// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_STATES_STATE_VALUES_H_
#define CASTOR_COLLECTIVES_ENGINE_STATES_STATE_VALUES_H_

// Values of parameters, gradients and the optimizer's states, whole and in
// fp32, as programs read and write them between uses and steps. Ranks read
// together and write the same. The store is asked; copies of parameters that
// are written are dropped first. A gradient that is written counts as used, and
// its norm is counted anew. No state. Owner thread only; all calls block.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/engine/engine_base.h"
#include "collectives/engine/gradients/gradient_norm.h"
#include "collectives/engine/gradients/gradient_reducer.h"
#include "collectives/engine/gradients/optimizer_pass.h"
#include "collectives/engine/rank_words.h"
#include "collectives/zero_engine.h"
#include "placement/state_kind.h"

namespace castor::internal {

class StateValues {
 public:
  StateValues(EngineBase& base, GradientNorm& norm,
              const GradientReducer& reducer, OptimizerPass& optimizer)
      : model_(base.model),
        memory_(base.memory),
        lanes_(base.lanes),
        progress_(base.progress),
        scalars_(base.scalars),
        record_(base.record),
        health_(base.health),
        words_(base),
        rules_(base.rules),
        norm_(norm),
        reducer_(reducer),
        optimizer_(optimizer) {}

  // The first values of all states.
  Status Initialize();

  // As the calls of these names (zero_engine.h).
  Status ReadParam(ParamId param, std::span<float> out) const;
  Status WriteParam(ParamId param, std::span<const float> values);
  Status WriteBack(std::span<const ZeroEngine::ParamValues> written);
  Status ReadGrad(ParamId param, std::span<float> out) const;
  // `used`: the parameter is updated in this step.
  Status WriteGrad(ParamId param, std::span<const float> values, bool used);
  Status DropGrad(ParamId param);
  Status ReadState(ParamId param, StateKind state, std::span<float> out) const;
  Status WriteState(ParamId param, StateKind state,
                    std::span<const float> values);
  Status SetUpdateCount(ParamId param, int64_t count);
  Result<uint64_t> Digest() const;
  // The first parameter whose reduced gradient is not finite. All ranks call
  // it, with the gradients of a step that none applies.
  Result<ParamId> FirstNotFinite() const;

 private:
  enum class Differing { kExactly, kInOwnType };

  Status Fill(ChunkId chunk, StateKind state, std::byte* out) const;
  // Whole values of a parameter, each multiplied by `factor`, from the state of
  // its chunk and from all ranks. REQUIRES: it is in a chunk.
  Status Read(ParamId param, StateKind state, float factor,
              std::span<float> out, std::string_view what) const;
  // The same of gradients in the trainer's memory.
  Status ReadBorrowed(ParamId param, float factor, std::span<float> out) const;
  Status WriteBorrowed(ParamId param, std::span<const float> sums);
  // This rank's part of them, in place of what the state has: all of it, or
  // what differs in the parameter's own type. REQUIRES: the store has it.
  Status Overwrite(ParamId param, StateKind kind, std::span<const float> values,
                   Differing differing = Differing::kExactly);
  // That all ranks write the same to the same parameters.
  Status AgreeOnWrites(std::span<const ZeroEngine::ParamValues> written) const;
  // What ReadGrad and WriteGrad ask for; `call` says which.
  Status RequireReduced(ParamId param, size_t elements,
                        std::string_view call) const;
  // The parameter's chunk, which has the state; not valid where the parameter
  // has no elements.
  Result<ChunkId> ChunkOfState(ParamId param, StateKind state,
                               size_t elements) const;
  void CheckSize(ParamId param, size_t elements) const;

  const EngineModel& model_;
  EngineMemory& memory_;
  const EngineLanes& lanes_;
  StepProgress& progress_;
  TrainingScalars& scalars_;
  const EngineRecord& record_;
  EngineHealth& health_;
  const RankWords words_;
  const CallRules& rules_;
  GradientNorm& norm_;
  const GradientReducer& reducer_;
  OptimizerPass& optimizer_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_STATES_STATE_VALUES_H_
