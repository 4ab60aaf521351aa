// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_MODEL_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_MODEL_H_

// GPT-2: embeddings, pre-norm blocks of attention and MLP, a final layer norm,
// a head tied to the token embedding, cross-entropy. It owns the activations of
// one micro-batch and no parameter: those it takes from a ParamSource, one
// layer's weight and bias at a time. float for training, double for checking
// gradients. Thread-compatible.

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "tools/examples/gpt/gpt_params.h"
#include "tools/examples/gpt/layers.h"
#include "tools/examples/gpt/param_source.h"

namespace castor::gpt {

template <typename T>
class Gpt {
 public:
  // For micro-batches of `batch` sequences of config.context tokens. REQUIRES:
  // a valid config.
  Gpt(const GptConfig& config, int batch);

  // The mean cross-entropy of predicting targets[n] after tokens[n]. REQUIRES:
  // batch * context of each, below config.vocab; both must live until Backward.
  Result<double> Forward(ParamSource<T>& params, std::span<const int> tokens,
                         std::span<const int> targets);
  // Adds the gradients of the last Forward's loss, times `loss_scale`, once.
  Status Backward(ParamSource<T>& params, double loss_scale = 1);

  // Of activations and gradients of activations, now.
  Bytes bytes() const;

 private:
  // What the way back needs of one block.
  struct BlockActivations {
    std::vector<T> input;  // the residual stream before the block
    std::vector<T> ln1, mean1, deviation1;
    std::vector<T> qkv, probabilities, attention;
    std::vector<T> middle;  // the residual stream before the MLP
    std::vector<T> ln2, mean2, deviation2;
    std::vector<T> mlp;  // before GELU
  };

  LinearShape Shape(int64_t in, int64_t out) const { return {rows_, in, out}; }
  Status BlockForward(ParamSource<T>& params, int layer, T* stream);
  Status BlockBackward(ParamSource<T>& params, int layer);
  Status NormForward(ParamSource<T>& params, ParamId weight, ParamId bias,
                     const T* x, T* y, T* mean, T* deviation);
  // Adds to gradient_.
  Status NormBackward(ParamSource<T>& params, ParamId weight, ParamId bias,
                      const T* dy, const T* x, const T* mean,
                      const T* deviation);
  // dx = way back of y = x weight + bias, and the parameters' gradients.
  Status LinearBackward(ParamSource<T>& params, const LinearShape& shape,
                        ParamId weight, ParamId bias, const T* dy, const T* x,
                        T* dx);

  GptConfig config_;
  GptParams ids_;
  AttentionShape attention_shape_;
  int64_t rows_;
  int64_t embd_;
  std::span<const int> tokens_;
  std::vector<int> positions_;
  std::vector<BlockActivations> blocks_;
  std::vector<T> stream_;  // after the last block
  std::vector<T> final_ln_, final_mean_, final_deviation_;
  std::vector<T> logits_;    // then their gradient
  std::vector<T> gradient_;  // of the residual stream
  std::vector<T> wide_;      // 4 embd per token: GELU's result, gradients
  std::vector<T> narrow_;    // embd per token
  std::vector<T> scratch_;   // of attention
  // Where gradients take the place of parameters: a product's input gradient,
  // or a norm's weight, until the parameters' gradients are made.
  std::vector<T> aside_;
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_MODEL_H_
