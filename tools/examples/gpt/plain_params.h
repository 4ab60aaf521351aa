// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_PLAIN_PARAMS_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_PLAIN_PARAMS_H_

// Part of the reference (reference_trainer.h). A model's parameters and
// gradients in plain arrays: what --reference trains, and what gradients are
// checked on. bf16 parameters are kept as numbers of T that bf16 can represent,
// beside their fp32 masters. Owns its arrays. Thread-compatible.

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "tools/examples/gpt/gpt_params.h"
#include "tools/examples/gpt/param_source.h"

namespace castor::gpt {

enum class Precision : uint8_t { kFull, kBf16 };

template <typename T>
class PlainParams final : public ParamSource<T> {
 public:
  PlainParams(const GptConfig& config, Precision precision, uint64_t seed);

  // A step is a first micro-batch and as many others as one likes. The end of
  // one adds its gradients to those of the step: round(sum + gradient), after
  // the first, whose gradients are the sum so far.
  void BeginMicroBatch(bool first);
  void EndMicroBatch();

  Status Hold(std::span<const ParamId> params,
              std::span<const T*> values) override;
  void Release() override {}
  Result<T*> OpenGrad(ParamId param) override;
  Status CloseGrad(ParamId param, GradUse use) override;

  int32_t size() const { return static_cast<int32_t>(arrays_.size()); }
  // What an optimizer updates: the parameter, or its master.
  std::span<T> master(ParamId param);
  // To be called when a master changed.
  void RoundFromMaster(ParamId param);
  // Of the step, over the micro-batches ended so far.
  std::span<const T> gradient(ParamId param) const {
    return arrays_[param.index()].sum;
  }

 private:
  struct Arrays {
    std::vector<T> values;  // as the model sees them
    std::vector<T> master;  // empty in full precision
    std::vector<T> sum;     // gradient of the step
    std::vector<T> part;    // of a micro-batch after the first
  };

  // Where gradients of the current micro-batch gather.
  std::vector<T>& Place(ParamId param);
  T Round(T value) const;

  Precision precision_;
  std::vector<Arrays> arrays_;
  bool first_ = true;  // the current micro-batch is the step's first
  // By parameter: a bf16 gradient is made in T and added when it is closed.
  std::vector<std::vector<T>> open_;
};

// bfloat16 as the trainer computes with it: the upper half of an fp32, rounded
// to nearest even.
inline float WidenBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t RoundToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Adding just under half a unit, or exactly half where the kept part is odd,
  // carries into it where it must. That would turn some NaNs into infinity.
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  return static_cast<uint16_t>(is_nan ? 0x7FC0 : rounded);
}

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_PLAIN_PARAMS_H_
