// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_ENGINE_PARAMS_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_ENGINE_PARAMS_H_

// A model's parameters in Castor: all that a trainer has to write to put a
// ZeroEngine under a model. fp32 parameters are used where they lie; others are
// widened for the products, and their gradients made in fp32 and added to the
// place, unless that is fp32 too. Where the host cannot address the device's
// memory, what the model computes with is copied from there and back. Owner
// thread only: the thread of the engine and of the lane.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "placement/derive/step_model.h"
#include "tools/examples/gpt/model/gpt_params.h"
#include "tools/examples/gpt/model/model.h"

namespace castor::gpt {

// What a micro-batch of a GPT does with its parameters, for Seal and for
// whoever plans. The step is not written down but observed, on a model of the
// same layers with one column, so the two cannot drift apart. `in_place`:
// gradients are written over parameters. REQUIRES: a valid config.
DeclaredStep StepOf(const GptConfig& config, bool in_place);

// A list of the parameters, in the order in which the trainer registers them,
// and of the step (tools/models/files/param_list.h). REQUIRES: a valid config.
std::string ModelList(const GptConfig& config, DType dtype, GradMode mode);

// Registers all parameters of a GPT, with their initial values, and seals the
// engine with what the model holds. `dtype` is kF32, kBF16 or kF16. Norms and
// biases are in the optimizer's group `vectors`.
Status RegisterAndSeal(const GptConfig& config, DType dtype, uint64_t seed,
                       ZeroEngine& engine, std::string_view vectors = {},
                       GradMode mode = GradMode::kSeparate,
                       int micro_batches = 1);

class EngineParams final : public ParamSource {
 public:
  // `engine` was made by RegisterAndSeal with the same arguments; it and the
  // lane, of the computing thread or of `device`, must outlive this. `device`:
  // whose memory the host cannot address; null where it can.
  EngineParams(const GptConfig& config, DType dtype, GradMode mode,
               ZeroEngine* engine, Lane* lane, Device* device = nullptr);

  Status Hold(std::span<const ParamId> params,
              std::span<const float*> values) override;
  void Release() override { lease_.Release(); }
  Result<float*> OpenGrad(ParamId param) override;
  Status CloseGrad(ParamId param, GradUse use) override;
  bool grads_in_place() const override { return mode_ == GradMode::kReuse; }

  // Of copies of parameters and gradients, in fp32 or of a device's memory.
  Bytes bytes() const;

 private:
  struct OpenGradient {
    ParamId param;
    void* place = nullptr;  // where the host has it
    std::vector<float> full;
    std::byte* on_device = nullptr;  // null: there
    std::vector<std::byte> copy;
  };

  size_t Elements(ParamId param) const {
    return static_cast<size_t>(params_.param(param).elements());
  }

  Bytes BytesOf(ParamId param, DType dtype) const {
    return castor::BytesOf(castor::Elements(params_.param(param).elements()),
                           dtype);
  }
  // Copies, and waits for it.
  Status CopyNow(void* to, const void* from, Bytes size, CopyKind kind);
  // One that is free, where `param` is none or not open.
  OpenGradient& OpenOf(ParamId param);

  GptParams params_;
  DType dtype_;
  GradMode mode_;
  DType grad_dtype_;
  ZeroEngine* engine_;
  Lane* lane_;
  Device* device_;
  ParamLease lease_;
  // Of a device's memory, reused from one use to the next.
  std::vector<std::vector<std::byte>> copies_;
  // Of low precision, reused from one use to the next.
  std::vector<std::vector<float>> widened_;
  std::vector<float> sum_;
  std::vector<OpenGradient> open_;
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_ENGINE_PARAMS_H_
