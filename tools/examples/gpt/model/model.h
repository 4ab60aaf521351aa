// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_MODEL_MODEL_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_MODEL_MODEL_H_

// GPT-2: embeddings, pre-norm blocks of attention and MLP, a final layer norm,
// a head tied to the token embedding, cross-entropy. It owns the activations of
// one micro-batch and no parameter: those it takes from a ParamSource, one
// layer's weight and bias at a time. Thread-compatible.

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
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
  // Of two parameters each. Of a norm, also what its way back needs.
  struct Norm {
    ParamId weight, bias;
    std::vector<float> input, output, mean, deviation;
  };
  struct Linear {
    ParamId weight, bias;
    LinearShape shape;
  };
  struct Block {
    Norm before_attention;
    Linear to_qkv, from_attention;
    Norm before_mlp;
    Linear into_mlp, out_of_mlp;
    std::vector<float> qkv, probabilities, attention;
    std::vector<float> mlp;  // before GELU
  };

  Status BlockForward(ParamSource& params, Block& block);
  Status BlockBackward(ParamSource& params, Block& block);
  // Of stream_, which is kept.
  Status NormForward(ParamSource& params, Norm& norm);
  // Adds to stream_, which the gradient has taken over.
  Status NormBackward(ParamSource& params, const Norm& norm,
                      const std::vector<float>& dy);
  static Status LinearForward(ParamSource& params, const Linear& linear,
                              const std::vector<float>& x, Into into,
                              std::vector<float>& y);
  // dx = way back of y = x weight + bias, and the parameters' gradients.
  Status LinearBackward(ParamSource& params, const Linear& linear,
                        const std::vector<float>& dy,
                        const std::vector<float>& x, std::vector<float>& dx);

  GptConfig config_;
  GptParams ids_;
  AttentionShape attention_shape_;
  int64_t rows_;
  int64_t embd_;
  size_t elements_ = 0;  // of all arrays but aside_
  std::span<const int> tokens_;
  std::vector<int> positions_;
  std::vector<Block> blocks_;
  Norm final_;
  std::vector<float> stream_;   // the residual stream, then its gradient
  std::vector<float> logits_;   // then their gradient
  std::vector<float> wide_;     // 4 embd per token: GELU's result, gradients
  std::vector<float> narrow_;   // embd per token
  std::vector<float> scratch_;  // of attention
  // Where gradients take the place of parameters: a product's input gradient,
  // or a norm's weight, until the parameters' gradients are made.
  std::vector<float> aside_;
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_MODEL_MODEL_H_
