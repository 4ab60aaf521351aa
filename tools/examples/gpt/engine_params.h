// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_ENGINE_PARAMS_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_ENGINE_PARAMS_H_

// A model's parameters in Castor: all that a trainer has to write to put a
// ZeroEngine under a model. fp32 parameters are used where they lie; bf16 ones
// are widened for the products, and their gradients made in fp32 and added to
// the bf16 place. Owner thread only: the thread of the engine and of the lane.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/zero_engine.h"
#include "offload/lane.h"
#include "tools/examples/gpt/gpt_params.h"
#include "tools/examples/gpt/param_source.h"

namespace castor::gpt {

// Registers all parameters of a GPT, with their initial values, and seals the
// engine with what the model holds. `dtype` is kF32 or kBF16.
Status RegisterAndSeal(const GptConfig& config, DType dtype, uint64_t seed,
                       ZeroEngine& engine);

class EngineParams final : public ParamSource<float> {
 public:
  // `engine` was made by RegisterAndSeal with the same arguments; it and the
  // lane of the computing thread must outlive this.
  EngineParams(const GptConfig& config, DType dtype, ZeroEngine* engine,
               ThreadLane* lane);

  Status Hold(std::span<const ParamId> params,
              std::span<const float*> values) override;
  void Release() override { lease_.Release(); }
  Result<float*> OpenGrad(ParamId param) override;
  Status CloseGrad(ParamId param, GradUse use) override;

 private:
  struct OpenGradient {
    ParamId param;
    uint16_t* place = nullptr;
    std::vector<float> full;
  };

  size_t Elements(ParamId param) const {
    return static_cast<size_t>(params_.param(param).elements());
  }

  GptParams params_;
  DType dtype_;
  ZeroEngine* engine_;
  ThreadLane* lane_;
  ParamLease lease_;
  // Of bf16, reused from one use to the next.
  std::vector<std::vector<float>> widened_;
  std::vector<OpenGradient> open_;
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_ENGINE_PARAMS_H_
