// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/engine_params.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "collectives/memory/held_moments.h"
#include "offload/kernels/convert.h"
#include "tools/examples/gpt/model/gpt_params.h"
#include "tools/models/files/param_list.h"

namespace castor::gpt {
namespace {

// Serves every parameter from the same few zeros and writes down what is asked.
class Observer final : public ParamSource {
 public:
  explicit Observer(bool in_place) : step_{{}, in_place} {}

  Status Hold(std::span<const ParamId> params,
              std::span<const float*> values) override {
    for (const float*& value : values) value = zeros_.data();
    step_.uses.push_back({{params.begin(), params.end()}, {}});
    under_way_ = true;
    return OkStatus();
  }
  void Release() override { under_way_ = false; }

  Result<float*> OpenGrad(ParamId param) override {
    if (!under_way_) step_.uses.emplace_back();
    under_way_ = true;
    step_.uses.back().grads.push_back(param);
    return gradient_.data();
  }
  // What is opened after this is another operation's.
  Status CloseGrad(ParamId, GradUse) override {
    under_way_ = false;
    return OkStatus();
  }

  bool grads_in_place() const override { return step_.grads_in_place; }

  DeclaredStep Take() { return std::move(step_); }

 private:
  // Of the model below, no parameter has more elements.
  std::array<float, 4> zeros_{};
  std::array<float, 4> gradient_{};
  DeclaredStep step_;
  bool under_way_ = false;  // the last operation
};

}  // namespace

DeclaredStep StepOf(const GptConfig& config, bool in_place) {
  const GptConfig narrow = {
      .vocab = 1, .context = 1, .layers = config.layers, .heads = 1, .embd = 1};
  Gpt model(narrow, 1);
  Observer observer(in_place);
  const std::array<int, 1> token = {0};
  CASTOR_CHECK(model.Forward(observer, token, token).ok());
  CASTOR_CHECK(model.Backward(observer).ok());
  return observer.Take();
}

std::string ModelList(const GptConfig& config, DType dtype, GradMode mode) {
  return WriteTsvList(SpecsOf(config, dtype),
                      StepOf(config, mode == GradMode::kReuse));
}

Status RegisterAndSeal(const GptConfig& config, DType dtype, uint64_t seed,
                       ZeroEngine& engine, std::string_view vectors,
                       GradMode mode, int micro_batches) {
  const GptParams params(config);
  const std::vector<ParamSpec> specs = SpecsOf(config, dtype);
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParamId expected(static_cast<int32_t>(i));
    const GptParam& param = params.param(expected);
    CASTOR_ASSIGN_OR_RETURN(
        const ParamId id,
        engine.Register(
            specs[i],
            [=](int64_t begin, int64_t end, float* out) {
              FillInitialValues(config, param, expected, seed, begin, end, out);
            },
            param.is_matrix() ? std::string_view() : vectors));
    CASTOR_CHECK_EQ(id, expected);
  }
  const DeclaredStep step = StepOf(config, mode == GradMode::kReuse);
  SealOptions seal;
  seal.micro_batches = micro_batches;
  seal.held = HeldMomentsOf(specs, BlocksOf(step),
                            {.grads_in_place = step.grads_in_place});
  return engine.Seal(seal);
}

EngineParams::EngineParams(const GptConfig& config, DType dtype, GradMode mode,
                           ZeroEngine* engine, Lane* lane, Device* device)
    : params_(config),
      dtype_(dtype),
      mode_(mode),
      grad_dtype_(mode == GradMode::kFp32 ? DType::kF32 : dtype),
      engine_(engine),
      lane_(lane),
      device_(device) {}

Status EngineParams::CopyNow(void* to, const void* from, Bytes size,
                             CopyKind kind) {
  device_->Copy(*lane_, static_cast<std::byte*>(to),
                static_cast<const std::byte*>(from), size, kind);
  return lane_->Drain();
}

Status EngineParams::Hold(std::span<const ParamId> params,
                          std::span<const float*> values) {
  CASTOR_ASSIGN_OR_RETURN(lease_, engine_->Acquire(params, *lane_));
  // A ThreadLane has waited; what it waited for may have failed.
  CASTOR_RETURN_IF_ERROR(lane_->status());
  widened_.resize(std::max(widened_.size(), params.size()));
  copies_.resize(std::max(copies_.size(), params.size()));
  for (size_t i = 0; i < params.size(); ++i) {
    const void* data = lease_.data(i);
    if (device_ != nullptr) {
      const Bytes size = BytesOf(params[i], dtype_);
      copies_[i].resize(
          std::max(copies_[i].size(), static_cast<size_t>(size.count())));
      CASTOR_RETURN_IF_ERROR(
          CopyNow(copies_[i].data(), data, size, CopyKind::kFromDevice));
      data = copies_[i].data();
    }
    if (dtype_ == DType::kF32) {
      values[i] = static_cast<const float*>(data);
      continue;
    }
    const size_t count = Elements(params[i]);
    widened_[i].resize(std::max(widened_[i].size(), count));
    ConvertToFloat(data, dtype_, static_cast<int64_t>(count),
                   widened_[i].data());
    values[i] = widened_[i].data();
  }
  return OkStatus();
}

Result<float*> EngineParams::OpenGrad(ParamId param) {
  CASTOR_ASSIGN_OR_RETURN(void* const place, engine_->Grad(param, *lane_));
  CASTOR_RETURN_IF_ERROR(lane_->status());
  if (grad_dtype_ == DType::kF32 && device_ == nullptr) {
    return static_cast<float*>(place);
  }
  OpenGradient& open = OpenOf(ParamId());
  open.param = param;
  open.place = place;
  if (device_ != nullptr) {
    const Bytes size = BytesOf(param, grad_dtype_);
    open.copy.resize(static_cast<size_t>(size.count()));
    open.on_device = static_cast<std::byte*>(place);
    open.place = open.copy.data();
    CASTOR_RETURN_IF_ERROR(
        CopyNow(open.place, place, size, CopyKind::kFromDevice));
  }
  if (grad_dtype_ == DType::kF32) return static_cast<float*>(open.place);
  open.full.assign(Elements(param), 0.0f);
  return open.full.data();
}

Status EngineParams::CloseGrad(ParamId param, GradUse use) {
  if (grad_dtype_ != DType::kF32 || device_ != nullptr) {
    OpenGradient& open = OpenOf(param);
    CASTOR_CHECK(open.param.valid());
    if (grad_dtype_ != DType::kF32) {
      const auto count = static_cast<int64_t>(open.full.size());
      sum_.resize(std::max(sum_.size(), open.full.size()));
      ConvertToFloat(open.place, grad_dtype_, count, sum_.data());
      for (size_t i = 0; i < open.full.size(); ++i) sum_[i] += open.full[i];
      ConvertFromFloat(sum_.data(), count, grad_dtype_, open.place);
    }
    if (device_ != nullptr) {
      CASTOR_RETURN_IF_ERROR(CopyNow(open.on_device, open.place,
                                     BytesOf(param, grad_dtype_),
                                     CopyKind::kToDevice));
    }
    open.param = ParamId();
  }
  if (use == GradUse::kMoreToCome) return OkStatus();
  return engine_->GradReady(param, *lane_);
}

castor::Bytes EngineParams::bytes() const {
  size_t bytes = sum_.capacity() * sizeof(float);
  for (const auto& copy : copies_) bytes += copy.capacity();
  for (const auto& wide : widened_) bytes += wide.capacity() * sizeof(float);
  for (const OpenGradient& open : open_) {
    bytes += open.full.capacity() * sizeof(float) + open.copy.capacity();
  }
  return Bytes(static_cast<int64_t>(bytes));
}

EngineParams::OpenGradient& EngineParams::OpenOf(ParamId param) {
  for (OpenGradient& open : open_) {
    if (open.param == param) return open;
  }
  return open_.emplace_back();
}

}  // namespace castor::gpt
