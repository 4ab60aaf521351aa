// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/model/model.h"

#include <algorithm>
#include <utility>

#include "chunk/base/check.h"
#include "tools/examples/gpt/model/gemm.h"
#include "tools/examples/gpt/model/layers.h"

namespace castor::gpt {

using enum BlockParam;

Gpt::Gpt(const GptConfig& config, int batch)
    : config_(config),
      ids_(config),
      attention_shape_{batch, config.context, config.heads, config.embd},
      rows_(int64_t{batch} * config.context),
      embd_(config.embd) {
  const auto array = [&](int64_t columns) {
    return std::vector<float>(static_cast<size_t>(rows_ * columns));
  };
  for (int64_t n = 0; n < rows_; ++n) {
    positions_.push_back(static_cast<int>(n % config.context));
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    blocks_.push_back(
        {.input = array(embd_),
         .ln1 = array(embd_),
         .mean1 = array(1),
         .deviation1 = array(1),
         .qkv = array(3 * embd_),
         .probabilities = array(int64_t{config.heads} * config.context),
         .attention = array(embd_),
         .middle = array(embd_),
         .ln2 = array(embd_),
         .mean2 = array(1),
         .deviation2 = array(1),
         .mlp = array(4 * embd_)});
  }
  stream_ = array(embd_);
  final_ln_ = array(embd_);
  final_mean_ = array(1);
  final_deviation_ = array(1);
  logits_ = array(config.vocab);
  gradient_ = array(embd_);
  wide_ = array(4 * embd_);
  narrow_ = array(embd_);
  scratch_.resize(static_cast<size_t>(AttentionScratch(attention_shape_)));
}

Result<double> Gpt::Forward(ParamSource& params, std::span<const int> tokens,
                            std::span<const int> targets) {
  CASTOR_CHECK_EQ(static_cast<int64_t>(tokens.size()), rows_);
  CASTOR_CHECK_EQ(static_cast<int64_t>(targets.size()), rows_);
  tokens_ = tokens;
  {
    CASTOR_ASSIGN_OR_RETURN(const Held tables,
                            Held::Hold(params, {ids_.token_embedding(),
                                                ids_.position_embedding()}));
    EmbeddingForward(tokens.data(), rows_, config_.context, embd_, tables[0],
                     tables[1], stream_.data());
  }
  for (int layer = 0; layer < config_.layers; ++layer) {
    CASTOR_RETURN_IF_ERROR(BlockForward(params, layer, stream_.data()));
  }
  CASTOR_RETURN_IF_ERROR(NormForward(
      params, ids_.final_ln_weight(), ids_.final_ln_bias(), stream_.data(),
      final_ln_.data(), final_mean_.data(), final_deviation_.data()));
  {
    CASTOR_ASSIGN_OR_RETURN(const Held table,
                            Held::Hold(params, {ids_.token_embedding()}));
    Multiply({rows_, config_.vocab, embd_}, {final_ln_.data(), embd_},
             Transposed(table[0], embd_), Into::kOverwrite, logits_.data(),
             config_.vocab);
  }
  return CrossEntropy(logits_.data(), targets.data(), rows_,
                      int64_t{config_.vocab});
}

Status Gpt::NormForward(ParamSource& params, ParamId weight, ParamId bias,
                        const float* x, float* y, float* mean,
                        float* deviation) {
  CASTOR_ASSIGN_OR_RETURN(const Held w, Held::Hold(params, {weight, bias}));
  LayerNormForward(x, rows_, embd_, w[0], w[1], y, mean, deviation);
  return OkStatus();
}

Status Gpt::BlockForward(ParamSource& params, int layer, float* stream) {
  BlockActivations& a = blocks_[static_cast<size_t>(layer)];
  const auto id = [&](BlockParam p) { return ids_.block(layer, p); };
  std::copy_n(stream, a.input.size(), a.input.data());
  CASTOR_RETURN_IF_ERROR(NormForward(params, id(kLn1Weight), id(kLn1Bias),
                                     stream, a.ln1.data(), a.mean1.data(),
                                     a.deviation1.data()));
  {
    CASTOR_ASSIGN_OR_RETURN(const Held w,
                            Held::Hold(params, {id(kQkvWeight), id(kQkvBias)}));
    LinearForward(Shape(embd_, 3 * embd_), a.ln1.data(), w[0], w[1],
                  a.qkv.data());
  }
  AttentionForward(attention_shape_, a.qkv.data(), a.probabilities.data(),
                   a.attention.data());
  {
    CASTOR_ASSIGN_OR_RETURN(
        const Held w,
        Held::Hold(params, {id(kAttentionOutWeight), id(kAttentionOutBias)}));
    LinearForwardAdd(Shape(embd_, embd_), a.attention.data(), w[0], w[1],
                     stream);
  }
  std::copy_n(stream, a.middle.size(), a.middle.data());
  CASTOR_RETURN_IF_ERROR(NormForward(params, id(kLn2Weight), id(kLn2Bias),
                                     stream, a.ln2.data(), a.mean2.data(),
                                     a.deviation2.data()));
  {
    CASTOR_ASSIGN_OR_RETURN(
        const Held w, Held::Hold(params, {id(kMlpInWeight), id(kMlpInBias)}));
    LinearForward(Shape(embd_, 4 * embd_), a.ln2.data(), w[0], w[1],
                  a.mlp.data());
  }
  Gelu(a.mlp.data(), rows_ * 4 * embd_, wide_.data());
  CASTOR_ASSIGN_OR_RETURN(
      const Held w, Held::Hold(params, {id(kMlpOutWeight), id(kMlpOutBias)}));
  LinearForwardAdd(Shape(4 * embd_, embd_), wide_.data(), w[0], w[1], stream);
  return OkStatus();
}

Status Gpt::Backward(ParamSource& params, double loss_scale) {
  if (loss_scale != 1) {
    for (float& gradient : logits_) gradient *= static_cast<float>(loss_scale);
  }
  const ParamId table = ids_.token_embedding();
  {
    CASTOR_ASSIGN_OR_RETURN(const Held w, Held::Hold(params, {table}));
    Multiply({rows_, embd_, config_.vocab}, {logits_.data(), config_.vocab},
             {w[0], embd_}, Into::kOverwrite, narrow_.data(), embd_);
  }
  {
    CASTOR_ASSIGN_OR_RETURN(float* const grad, params.OpenGrad(table));
    Multiply({config_.vocab, embd_, rows_},
             Transposed(logits_.data(), config_.vocab),
             {final_ln_.data(), embd_}, Into::kAdd, grad, embd_);
    CASTOR_RETURN_IF_ERROR(params.CloseGrad(table, GradUse::kMoreToCome));
  }
  std::fill(gradient_.begin(), gradient_.end(), 0.0f);
  CASTOR_RETURN_IF_ERROR(NormBackward(
      params, ids_.final_ln_weight(), ids_.final_ln_bias(), narrow_.data(),
      stream_.data(), final_mean_.data(), final_deviation_.data()));
  for (int layer = config_.layers - 1; layer >= 0; --layer) {
    CASTOR_RETURN_IF_ERROR(BlockBackward(params, layer));
  }
  const auto scatter = [&](ParamId id, const int* index) -> Status {
    CASTOR_ASSIGN_OR_RETURN(float* const grad, params.OpenGrad(id));
    EmbeddingBackward(gradient_.data(), index, rows_, embd_, grad);
    return params.CloseGrad(id, GradUse::kComplete);
  };
  CASTOR_RETURN_IF_ERROR(scatter(ids_.position_embedding(), positions_.data()));
  return scatter(table, tokens_.data());
}

Status Gpt::NormBackward(ParamSource& params, ParamId weight, ParamId bias,
                         const float* dy, const float* x, const float* mean,
                         const float* deviation) {
  CASTOR_ASSIGN_OR_RETURN(Held w, Held::Hold(params, {weight}));
  const float* values = w[0];
  if (params.grads_in_place()) {
    const Held over = std::move(w);
    aside_.assign(values, values + embd_);
    values = aside_.data();
  }
  CASTOR_ASSIGN_OR_RETURN(float* const grad_weight, params.OpenGrad(weight));
  CASTOR_ASSIGN_OR_RETURN(float* const grad_bias, params.OpenGrad(bias));
  LayerNormBackward(dy, x, mean, deviation, rows_, embd_, values,
                    gradient_.data(), grad_weight, grad_bias);
  CASTOR_RETURN_IF_ERROR(params.CloseGrad(bias, GradUse::kComplete));
  return params.CloseGrad(weight, GradUse::kComplete);
}

Status Gpt::LinearBackward(ParamSource& params, const LinearShape& shape,
                           ParamId weight, ParamId bias, const float* dy,
                           const float* x, float* dx) {
  // The parameters' gradients first: dx may take the place of x.
  const bool in_place = params.grads_in_place();
  const auto input = [&](float* to) -> Status {
    CASTOR_ASSIGN_OR_RETURN(const Held w, Held::Hold(params, {weight}));
    LinearBackwardInput(shape, dy, w[0], to);
    return OkStatus();
  };
  if (in_place) {
    aside_.resize(static_cast<size_t>(shape.rows * shape.in));
    CASTOR_RETURN_IF_ERROR(input(aside_.data()));
  }
  {
    CASTOR_ASSIGN_OR_RETURN(float* const grad_weight, params.OpenGrad(weight));
    CASTOR_ASSIGN_OR_RETURN(float* const grad_bias, params.OpenGrad(bias));
    LinearBackwardParams(shape, dy, x, grad_weight, grad_bias);
    CASTOR_RETURN_IF_ERROR(params.CloseGrad(bias, GradUse::kComplete));
    CASTOR_RETURN_IF_ERROR(params.CloseGrad(weight, GradUse::kComplete));
  }
  if (!in_place) return input(dx);
  std::copy(aside_.begin(), aside_.end(), dx);
  return OkStatus();
}

Status Gpt::BlockBackward(ParamSource& params, int layer) {
  BlockActivations& a = blocks_[static_cast<size_t>(layer)];
  const auto id = [&](BlockParam p) { return ids_.block(layer, p); };
  // MLP. GELU again, which leaves its slope in a.mlp.
  GeluAndSlope(a.mlp.data(), rows_ * 4 * embd_, wide_.data());
  CASTOR_RETURN_IF_ERROR(LinearBackward(
      params, Shape(4 * embd_, embd_), id(kMlpOutWeight), id(kMlpOutBias),
      gradient_.data(), wide_.data(), wide_.data()));
  MultiplyInto(a.mlp.data(), rows_ * 4 * embd_, wide_.data());
  CASTOR_RETURN_IF_ERROR(LinearBackward(
      params, Shape(embd_, 4 * embd_), id(kMlpInWeight), id(kMlpInBias),
      wide_.data(), a.ln2.data(), narrow_.data()));
  CASTOR_RETURN_IF_ERROR(NormBackward(params, id(kLn2Weight), id(kLn2Bias),
                                      narrow_.data(), a.middle.data(),
                                      a.mean2.data(), a.deviation2.data()));
  // Attention.
  CASTOR_RETURN_IF_ERROR(LinearBackward(params, Shape(embd_, embd_),
                                        id(kAttentionOutWeight),
                                        id(kAttentionOutBias), gradient_.data(),
                                        a.attention.data(), narrow_.data()));
  AttentionBackward(attention_shape_, narrow_.data(), a.qkv.data(),
                    a.probabilities.data(), scratch_.data(), wide_.data());
  CASTOR_RETURN_IF_ERROR(
      LinearBackward(params, Shape(embd_, 3 * embd_), id(kQkvWeight),
                     id(kQkvBias), wide_.data(), a.ln1.data(), narrow_.data()));
  return NormBackward(params, id(kLn1Weight), id(kLn1Bias), narrow_.data(),
                      a.input.data(), a.mean1.data(), a.deviation1.data());
}

Bytes Gpt::bytes() const {
  size_t count = 0;
  const auto add = [&](auto&... arrays) { count += (arrays.capacity() + ...); };
  for (const BlockActivations& a : blocks_) {
    add(a.input, a.ln1, a.mean1, a.deviation1, a.qkv, a.probabilities,
        a.attention, a.middle, a.ln2, a.mean2, a.deviation2, a.mlp);
  }
  add(stream_, final_ln_, final_mean_, final_deviation_, logits_, gradient_,
      wide_, narrow_, scratch_, aside_);
  return Bytes(static_cast<int64_t>(count * sizeof(float)));
}

}  // namespace castor::gpt
