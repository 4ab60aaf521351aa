// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_PARAMS_PARAM_LEASES_H_
#define CASTOR_COLLECTIVES_ENGINE_PARAMS_PARAM_LEASES_H_

// Leases of parameters. A lease asks late gradients first, which may reduce
// what the plan has before this use or its end, and then the memory manager. In
// steady state nothing is allocated: what a lease has is lent, and lent again.
// Owner thread only.

#include <memory>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/engine/engine_base.h"
#include "collectives/engine/gradients/gradient_reducer.h"
#include "collectives/engine/gradients/late_gradients.h"
#include "collectives/engine/gradients/optimizer_pass.h"
#include "collectives/engine/params/lease_copies.h"
#include "collectives/zero_engine.h"
#include "offload/lane.h"

namespace castor::internal {

class ParamLeases final : public ParamLease::Lender {
 public:
  ParamLeases(EngineBase& base, LateGradients& late,
              const GradientReducer& reducer, const OptimizerPass& optimizer)
      : model_(base.model),
        memory_(base.memory),
        progress_(base.progress),
        late_(late),
        reducer_(reducer),
        optimizer_(optimizer) {}

  Result<ParamLease> Acquire(std::span<const ParamId> params, Lane& lane);
  // Those acquired so far, in order, but for evaluations; then the others.
  std::vector<ParamId> FirstUses() const;
  // Before the memory goes that copies for leases lie beside.
  void DropCopies() { copies_.reset(); }

  // ParamLease::Lender.
  void TakeBack(ParamLease::Held* held) override;

 private:
  // One that nobody has.
  ParamLease::Held* Spare();
  // Holds the parameter's chunk, unless the lease does already.
  Result<const ChunkPin*> Pin(ChunkId chunk, Lane& lane,
                              ParamLease::Held& held);
  // Puts copies in place of what the lease has (ZeroOptions::poison).
  Status Copy(std::span<const ParamId> params, Lane& lane,
              ParamLease::Held& held);

  const EngineModel& model_;
  EngineMemory& memory_;
  StepProgress& progress_;
  LateGradients& late_;
  const GradientReducer& reducer_;
  const OptimizerPass& optimizer_;
  std::vector<ParamId> first_uses_;
  std::vector<bool> acquired_;  // by ParamId
  std::vector<std::unique_ptr<ParamLease::Held>> all_;
  std::vector<ParamLease::Held*> spare_;  // not lent to the trainer just now
  std::unique_ptr<LeaseCopies> copies_;   // null: none were made
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_PARAMS_PARAM_LEASES_H_
