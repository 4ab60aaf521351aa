// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_MODEL_MODEL_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_MODEL_MODEL_H_

// GPT-2: embeddings, pre-norm blocks of attention and MLP, a final layer norm,
// a head tied to the token embedding, cross-entropy. It owns the activations of
// one micro-batch and no parameter: those it takes from a ParamSource, one
// layer's weight and bias at a time. Thread-compatible.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "tools/examples/gpt/model/gpt_params.h"
#include "tools/examples/gpt/model/layers.h"

namespace castor::gpt {

// How a model reaches its parameters: it holds the ones an operation needs just
// around it, and hands back gradients as they become complete. Where the bytes
// live, and in which dtype, is the source's business. One model, one thread,
// one source.
enum class GradUse : uint8_t {
  kMoreToCome,  // the parameter is used again: another gradient follows
  kComplete,    // the micro-batch's gradient of this parameter is all there
};

class ParamSource {
 public:
  virtual ~ParamSource() = default;

  // values[i] = the values of params[i], row-major, until Release. REQUIRES:
  // nothing held.
  virtual Status Hold(std::span<const ParamId> params,
                      std::span<const float*> values) = 0;
  virtual void Release() = 0;

  // Where to add to the gradient of `param`, until CloseGrad. Several may be
  // open.
  virtual Result<float*> OpenGrad(ParamId param) = 0;
  virtual Status CloseGrad(ParamId param, GradUse use) = 0;

  // Gradients are written over their parameters: these are released before,
  // and not held again until the step.
  virtual bool grads_in_place() const { return false; }
};

// Parameters held until the end of its life. Move-only.
class Held {
 public:
  static constexpr size_t kMost = 2;

  static Result<Held> Hold(ParamSource& source,
                           std::initializer_list<ParamId> params) {
    CASTOR_CHECK_LE(params.size(), kMost);
    Held held;
    CASTOR_RETURN_IF_ERROR(
        source.Hold(std::span(params.begin(), params.size()),
                    std::span(held.values_).first(params.size())));
    held.source_ = &source;
    return held;
  }

  Held(Held&& other) noexcept
      : source_(std::exchange(other.source_, nullptr)),
        values_(other.values_) {}
  Held& operator=(Held&&) = delete;
  ~Held() {
    if (source_ != nullptr) source_->Release();
  }

  const float* operator[](size_t i) const { return values_[i]; }

 private:
  Held() = default;

  ParamSource* source_ = nullptr;
  std::array<const float*, kMost> values_{};
};

class Gpt {
 public:
  // For micro-batches of `batch` sequences of config.context tokens. REQUIRES:
  // a valid config.
  Gpt(const GptConfig& config, int batch);

  // The mean cross-entropy of predicting targets[n] after tokens[n]. REQUIRES:
  // batch * context of each, below config.vocab; both must live until Backward.
  Result<double> Forward(ParamSource& params, std::span<const int> tokens,
                         std::span<const int> targets);
  // Adds the gradients of the last Forward's loss, times `loss_scale`, once.
  Status Backward(ParamSource& params, double loss_scale = 1);

  // Of activations and gradients of activations, now.
  Bytes bytes() const;

 private:
  // What the way back needs of one block.
  struct BlockActivations {
    std::vector<float> input;  // the residual stream before the block
    std::vector<float> ln1, mean1, deviation1;
    std::vector<float> qkv, probabilities, attention;
    std::vector<float> middle;  // the residual stream before the MLP
    std::vector<float> ln2, mean2, deviation2;
    std::vector<float> mlp;  // before GELU
  };

  LinearShape Shape(int64_t in, int64_t out) const { return {rows_, in, out}; }
  Status BlockForward(ParamSource& params, int layer, float* stream);
  Status BlockBackward(ParamSource& params, int layer);
  Status NormForward(ParamSource& params, ParamId weight, ParamId bias,
                     const float* x, float* y, float* mean, float* deviation);
  // Adds to gradient_.
  Status NormBackward(ParamSource& params, ParamId weight, ParamId bias,
                      const float* dy, const float* x, const float* mean,
                      const float* deviation);
  // dx = way back of y = x weight + bias, and the parameters' gradients.
  Status LinearBackward(ParamSource& params, const LinearShape& shape,
                        ParamId weight, ParamId bias, const float* dy,
                        const float* x, float* dx);

  GptConfig config_;
  GptParams ids_;
  AttentionShape attention_shape_;
  int64_t rows_;
  int64_t embd_;
  std::span<const int> tokens_;
  std::vector<int> positions_;
  std::vector<BlockActivations> blocks_;
  std::vector<float> stream_;  // after the last block
  std::vector<float> final_ln_, final_mean_, final_deviation_;
  std::vector<float> logits_;    // then their gradient
  std::vector<float> gradient_;  // of the residual stream
  std::vector<float> wide_;      // 4 embd per token: GELU's result, gradients
  std::vector<float> narrow_;    // embd per token
  std::vector<float> scratch_;   // of attention
  // Where gradients take the place of parameters: a product's input gradient,
  // or a norm's weight, until the parameters' gradients are made.
  std::vector<float> aside_;
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_MODEL_MODEL_H_
