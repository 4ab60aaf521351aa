// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/model/model.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "chunk/base/check.h"
#include "tools/examples/gpt/model/gemm.h"
#include "tools/examples/gpt/model/layers.h"

namespace castor::gpt {
namespace {

using Values = std::array<const float*, 2>;

// Calls `use` with the parameters, which are held just for that.
template <typename Use>
Status Holding(ParamSource& source, std::initializer_list<ParamId> params,
               const Use& use) {
  Values values{};
  CASTOR_CHECK_LE(params.size(), values.size());
  CASTOR_RETURN_IF_ERROR(source.Hold(std::span(params.begin(), params.size()),
                                     std::span(values).first(params.size())));
  use(values);
  source.Release();
  return OkStatus();
}

}  // namespace

Gpt::Gpt(const GptConfig& config, int batch)
    : config_(config),
      ids_(config),
      attention_shape_{batch, config.context, config.heads, config.embd},
      rows_(int64_t{batch} * config.context),
      embd_(config.embd) {
  const auto array = [&](int64_t elements) {
    elements_ += static_cast<size_t>(elements);
    return std::vector<float>(static_cast<size_t>(elements));
  };
  const auto columns = [&](int64_t count) { return array(rows_ * count); };
  // In initialization order, after the tables.
  int32_t next = ids_.position_embedding().value() + 1;
  const auto norm = [&] {
    return Norm{ParamId(next++), ParamId(next++), columns(embd_),
                columns(embd_),  columns(1),      columns(1)};
  };
  const auto linear = [&](int64_t in, int64_t out) {
    return Linear{ParamId(next++), ParamId(next++), {rows_, in, out}};
  };
  for (int64_t n = 0; n < rows_; ++n) {
    positions_.push_back(static_cast<int>(n % config.context));
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    blocks_.push_back(
        {.before_attention = norm(),
         .to_qkv = linear(embd_, 3 * embd_),
         .from_attention = linear(embd_, embd_),
         .before_mlp = norm(),
         .into_mlp = linear(embd_, 4 * embd_),
         .out_of_mlp = linear(4 * embd_, embd_),
         .qkv = columns(3 * embd_),
         .probabilities = columns(int64_t{config.heads} * config.context),
         .attention = columns(embd_),
         .mlp = columns(4 * embd_)});
  }
  final_ = norm();
  stream_ = columns(embd_);
  logits_ = columns(config.vocab);
  wide_ = columns(4 * embd_);
  narrow_ = columns(embd_);
  scratch_ = array(AttentionScratch(attention_shape_));
}

Result<double> Gpt::Forward(ParamSource& params, std::span<const int> tokens,
                            std::span<const int> targets) {
  CASTOR_CHECK_EQ(static_cast<int64_t>(tokens.size()), rows_);
  CASTOR_CHECK_EQ(static_cast<int64_t>(targets.size()), rows_);
  tokens_ = tokens;
  CASTOR_RETURN_IF_ERROR(
      Holding(params, {ids_.token_embedding(), ids_.position_embedding()},
              [&](const Values& tables) {
                EmbeddingForward(tokens.data(), rows_, config_.context, embd_,
                                 tables[0], tables[1], stream_.data());
              }));
  for (Block& block : blocks_) {
    CASTOR_RETURN_IF_ERROR(BlockForward(params, block));
  }
  CASTOR_RETURN_IF_ERROR(NormForward(params, final_));
  CASTOR_RETURN_IF_ERROR(
      Holding(params, {ids_.token_embedding()}, [&](const Values& table) {
        Multiply({rows_, config_.vocab, embd_}, {final_.output.data(), embd_},
                 Transposed(table[0], embd_), Into::kOverwrite, logits_.data(),
                 config_.vocab);
      }));
  return CrossEntropy(logits_.data(), targets.data(), rows_,
                      int64_t{config_.vocab});
}

Status Gpt::NormForward(ParamSource& params, Norm& norm) {
  norm.input = stream_;
  return Holding(params, {norm.weight, norm.bias}, [&](const Values& w) {
    LayerNormForward(stream_.data(), rows_, embd_, w[0], w[1],
                     norm.output.data(), norm.mean.data(),
                     norm.deviation.data());
  });
}

Status Gpt::LinearForward(ParamSource& params, const Linear& linear,
                          const std::vector<float>& x, Into into,
                          std::vector<float>& y) {
  return Holding(params, {linear.weight, linear.bias}, [&](const Values& w) {
    gpt::LinearForward(linear.shape, x.data(), w[0], w[1], into, y.data());
  });
}

Status Gpt::BlockForward(ParamSource& params, Block& block) {
  CASTOR_RETURN_IF_ERROR(NormForward(params, block.before_attention));
  CASTOR_RETURN_IF_ERROR(LinearForward(params, block.to_qkv,
                                       block.before_attention.output,
                                       Into::kOverwrite, block.qkv));
  AttentionForward(attention_shape_, block.qkv.data(),
                   block.probabilities.data(), block.attention.data());
  CASTOR_RETURN_IF_ERROR(LinearForward(params, block.from_attention,
                                       block.attention, Into::kAdd, stream_));
  CASTOR_RETURN_IF_ERROR(NormForward(params, block.before_mlp));
  CASTOR_RETURN_IF_ERROR(LinearForward(params, block.into_mlp,
                                       block.before_mlp.output,
                                       Into::kOverwrite, block.mlp));
  Gelu(block.mlp.data(), std::ssize(block.mlp), wide_.data());
  return LinearForward(params, block.out_of_mlp, wide_, Into::kAdd, stream_);
}

Status Gpt::Backward(ParamSource& params, double loss_scale) {
  if (loss_scale != 1) {
    for (float& gradient : logits_) gradient *= static_cast<float>(loss_scale);
  }
  const ParamId table = ids_.token_embedding();
  CASTOR_RETURN_IF_ERROR(Holding(params, {table}, [&](const Values& w) {
    Multiply({rows_, embd_, config_.vocab}, {logits_.data(), config_.vocab},
             {w[0], embd_}, Into::kOverwrite, narrow_.data(), embd_);
  }));
  {
    CASTOR_ASSIGN_OR_RETURN(float* const grad, params.OpenGrad(table));
    Multiply({config_.vocab, embd_, rows_},
             Transposed(logits_.data(), config_.vocab),
             {final_.output.data(), embd_}, Into::kAdd, grad, embd_);
    CASTOR_RETURN_IF_ERROR(params.CloseGrad(table, GradUse::kMoreToCome));
  }
  std::fill(stream_.begin(), stream_.end(), 0.0f);
  CASTOR_RETURN_IF_ERROR(NormBackward(params, final_, narrow_));
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    CASTOR_RETURN_IF_ERROR(BlockBackward(params, *block));
  }
  const auto scatter = [&](ParamId id, const int* index) -> Status {
    CASTOR_ASSIGN_OR_RETURN(float* const grad, params.OpenGrad(id));
    EmbeddingBackward(stream_.data(), index, rows_, embd_, grad);
    return params.CloseGrad(id, GradUse::kComplete);
  };
  CASTOR_RETURN_IF_ERROR(scatter(ids_.position_embedding(), positions_.data()));
  return scatter(table, tokens_.data());
}

Status Gpt::NormBackward(ParamSource& params, const Norm& norm,
                         const std::vector<float>& dy) {
  const auto backward = [&](const float* weight) -> Status {
    CASTOR_ASSIGN_OR_RETURN(float* const grad_weight,
                            params.OpenGrad(norm.weight));
    CASTOR_ASSIGN_OR_RETURN(float* const grad_bias, params.OpenGrad(norm.bias));
    LayerNormBackward(dy.data(), norm.input.data(), norm.mean.data(),
                      norm.deviation.data(), rows_, embd_, weight,
                      stream_.data(), grad_weight, grad_bias);
    CASTOR_RETURN_IF_ERROR(params.CloseGrad(norm.bias, GradUse::kComplete));
    return params.CloseGrad(norm.weight, GradUse::kComplete);
  };
  Status done;
  CASTOR_RETURN_IF_ERROR(Holding(params, {norm.weight}, [&](const Values& w) {
    if (params.grads_in_place()) {
      aside_.assign(w[0], w[0] + embd_);
    } else {
      done = backward(w[0]);
    }
  }));
  return params.grads_in_place() ? backward(aside_.data()) : done;
}

Status Gpt::LinearBackward(ParamSource& params, const Linear& linear,
                           const std::vector<float>& dy,
                           const std::vector<float>& x,
                           std::vector<float>& dx) {
  // The parameters' gradients first: dx may take the place of x.
  const bool in_place = params.grads_in_place();
  const auto input = [&](float* to) {
    return Holding(params, {linear.weight}, [&](const Values& w) {
      LinearBackwardInput(linear.shape, dy.data(), w[0], to);
    });
  };
  if (in_place) {
    aside_.resize(static_cast<size_t>(rows_ * linear.shape.in));
    CASTOR_RETURN_IF_ERROR(input(aside_.data()));
  }
  {
    CASTOR_ASSIGN_OR_RETURN(float* const grad_weight,
                            params.OpenGrad(linear.weight));
    CASTOR_ASSIGN_OR_RETURN(float* const grad_bias,
                            params.OpenGrad(linear.bias));
    LinearBackwardParams(linear.shape, dy.data(), x.data(), grad_weight,
                         grad_bias);
    CASTOR_RETURN_IF_ERROR(params.CloseGrad(linear.bias, GradUse::kComplete));
    CASTOR_RETURN_IF_ERROR(params.CloseGrad(linear.weight, GradUse::kComplete));
  }
  if (!in_place) return input(dx.data());
  std::copy(aside_.begin(), aside_.end(), dx.begin());
  return OkStatus();
}

Status Gpt::BlockBackward(ParamSource& params, Block& block) {
  // MLP. GELU again, which leaves its slope in block.mlp.
  GeluAndSlope(block.mlp.data(), std::ssize(block.mlp), wide_.data());
  CASTOR_RETURN_IF_ERROR(
      LinearBackward(params, block.out_of_mlp, stream_, wide_, wide_));
  for (size_t i = 0; i < wide_.size(); ++i) wide_[i] *= block.mlp[i];
  CASTOR_RETURN_IF_ERROR(LinearBackward(params, block.into_mlp, wide_,
                                        block.before_mlp.output, narrow_));
  CASTOR_RETURN_IF_ERROR(NormBackward(params, block.before_mlp, narrow_));
  CASTOR_RETURN_IF_ERROR(LinearBackward(params, block.from_attention, stream_,
                                        block.attention, narrow_));
  AttentionBackward(attention_shape_, narrow_.data(), block.qkv.data(),
                    block.probabilities.data(), scratch_.data(), wide_.data());
  CASTOR_RETURN_IF_ERROR(LinearBackward(
      params, block.to_qkv, wide_, block.before_attention.output, narrow_));
  return NormBackward(params, block.before_attention, narrow_);
}

Bytes Gpt::bytes() const {
  return Bytes(
      static_cast<int64_t>((elements_ + aside_.capacity()) * sizeof(float)));
}

}  // namespace castor::gpt
