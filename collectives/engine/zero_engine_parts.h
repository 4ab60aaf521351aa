// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_ZERO_ENGINE_PARTS_H_
#define CASTOR_COLLECTIVES_ENGINE_ZERO_ENGINE_PARTS_H_

// The parts of a ZeroEngine: objects that own their state. The header of a part
// names its callers, and its members are all that the part may touch. The
// engine's calls (zero_engine_*.cc) check what a call requires, ask the parts
// in order, and keep the phase and the step.
//
//   base         the model, memory, lanes, the step, health, the record.
//   passes       work on states where the states live.
//   gathers      parameters from their homes, for the memory manager.
//   norm         squares of reduced gradients.
//   optimizer    updates of chunks.
//   reducer      gradients from their slots to their homes.
//   late         when a gradient is reduced: a gradient waits here.
//   agreement    what ranks agree on at the end of a step.
//   leases       parameters on loan to the trainer.
//   values       values of states, read and written.
//   offloader    an empty device.
//   checkpoints  saves and loads.
//
// Who may release a slot of the device: `leases` ends uses of parameters, and
// `reducer` closes gradients. The memory manager gives the slot back, at once
// or when the plan says so. Steps that end and states that change drop copies
// (EngineMemory).
//
// Device memory is touched by operations of the device only, on its own lanes
// and the trainer's. The one exception is a communicator that needs memory
// which the host addresses: Seal refuses it on a device that has none.
//
// Background work is queued on lanes and ordered by events, always on events of
// work queued earlier; ranks queue collectives in the same order. So there is
// no cycle to wait in. Everything here is touched by the owner thread only,
// except what a lane's work captures: lanes are drained before the parts go.

#include <type_traits>

#include "chunk/base/status.h"
#include "collectives/communicator.h"
#include "collectives/engine/engine_base.h"
#include "collectives/engine/gradients/gradient_norm.h"
#include "collectives/engine/gradients/gradient_reducer.h"
#include "collectives/engine/gradients/late_gradients.h"
#include "collectives/engine/gradients/optimizer_pass.h"
#include "collectives/engine/gradients/step_agreement.h"
#include "collectives/engine/memory/home_passes.h"
#include "collectives/engine/params/param_gathers.h"
#include "collectives/engine/params/param_leases.h"
#include "collectives/engine/states/checkpoint_io.h"
#include "collectives/engine/states/state_offloader.h"
#include "collectives/engine/states/state_values.h"
#include "collectives/engine_results.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"

namespace castor {

struct ZeroEngine::Parts {
  Parts(const ZeroOptions& options, Communicator* comm);
  ~Parts();

  // A Status, or a Result, as it is told: a failure names parameters where it
  // has the numbers of chunks.
  template <typename T>
  T Told(T answer) const {
    if (answer.ok()) [[likely]] {
      return answer;
    }
    if constexpr (std::is_same_v<T, Status>) {
      return base.model.WithNames(answer);
    } else {
      return base.model.WithNames(answer.status());
    }
  }
  class Resealing;

  // All memory of an engine whose model has a layout.
  Status BuildMemory(const SealOptions& declared, const SlabComing& coming = {},
                     const RankPools* before = nullptr);
  // Waits for background work and gives everything back but the slabs.
  Status ShutDown();
  EngineStats stats() const;

  internal::EngineBase base;
  internal::HomePasses passes{base};
  internal::ParamGathers gathers{base};
  internal::GradientNorm norm{base, passes};
  internal::OptimizerPass optimizer{base, passes, gathers};
  internal::GradientReducer reducer{base, passes, norm, optimizer};
  internal::LateGradients late{base, reducer};
  internal::StepAgreement agreement{base, norm, reducer, late, optimizer};
  internal::ParamLeases leases{base, late, reducer, optimizer};
  internal::StateValues values{base, norm, reducer, optimizer};
  internal::StateOffloader offloader{base};
  internal::CheckpointIo checkpoints{base};
  EngineStats final_stats;  // once closed
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ENGINE_ZERO_ENGINE_PARTS_H_
