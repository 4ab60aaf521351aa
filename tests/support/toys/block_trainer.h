// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_TOYS_BLOCK_TRAINER_H_
#define CASTOR_TESTS_SUPPORT_TOYS_BLOCK_TRAINER_H_

// A trainer that does what blocks describe (placement/derive/step_model.h),
// call by call, and computes nothing: what is derived from the blocks can be
// held to what an engine records and moves. Owner thread only.

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/zero_engine.h"
#include "offload/lane.h"
#include "placement/derive/step_model.h"

namespace castor {

// Blocks, shape and a sealed engine outlive it.
class BlockTrainer {
 public:
  BlockTrainer(const std::vector<ModelBlock>& blocks, const StepShape& shape,
               ZeroEngine* engine)
      : blocks_(blocks), shape_(shape), engine_(engine) {
    for (size_t b = blocks.size(); b-- > 0;) {
      for (size_t u = 0; u < blocks[b].backward.size(); ++u) {
        for (const ParamId param : blocks[b].backward[u].grads) {
          last_[param.value()] = {b, u};
        }
      }
    }
  }

  Status Step() {
    for (int64_t m = 0; m < shape_.micro_batches; ++m) {
      CASTOR_RETURN_IF_ERROR(
          engine_->BeginMicroBatch(m + 1 == shape_.micro_batches));
      for (const ModelBlock& block : blocks_) {
        CASTOR_RETURN_IF_ERROR(Hold(block.forward));
      }
      for (size_t b = blocks_.size(); b-- > 0;) {
        if (shape_.recompute && blocks_[b].kind == BlockKind::kLayer) {
          CASTOR_RETURN_IF_ERROR(Hold(blocks_[b].forward));
        }
        CASTOR_RETURN_IF_ERROR(Backward(b));
      }
    }
    return engine_->Step(kRate).status();
  }

 private:
  static constexpr double kRate = 1e-3;

  Status Hold(const std::vector<ParamUse>& uses) {
    for (const ParamUse& use : uses) {
      CASTOR_RETURN_IF_ERROR(engine_->Acquire(use.hold, lane_).status());
    }
    return OkStatus();
  }

  Status Backward(size_t b) {
    for (size_t u = 0; u < blocks_[b].backward.size(); ++u) {
      const ParamUse& use = blocks_[b].backward[u];
      CASTOR_ASSIGN_OR_RETURN(ParamLease lease,
                              engine_->Acquire(use.hold, lane_));
      if (shape_.grads_in_place) lease.Release();
      for (const ParamId param : use.grads) {
        CASTOR_RETURN_IF_ERROR(engine_->Grad(param, lane_).status());
      }
      for (size_t i = use.grads.size(); i-- > 0;) {
        if (last_.at(use.grads[i].value()) != std::pair(b, u)) continue;
        CASTOR_RETURN_IF_ERROR(engine_->GradReady(use.grads[i], lane_));
      }
    }
    return OkStatus();
  }

  const std::vector<ModelBlock>& blocks_;
  const StepShape& shape_;
  ZeroEngine* const engine_;
  std::map<int32_t, std::pair<size_t, size_t>> last_;  // opening, by parameter
  ThreadLane lane_{"compute"};
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_TOYS_BLOCK_TRAINER_H_
