// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/derive/activation_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "chunk/text/units_text.h"
#include "placement/trace/step_trace.h"

namespace castor {
namespace {

// Tokens whose logits are there at once where the loss takes them in chunks.
constexpr int64_t kChunkOfTokens = 256;

// Widths that were left to their defaults filled in.
TransformerShape Filled(TransformerShape shape) {
  if (shape.query_width == 0) shape.query_width = shape.width;
  if (shape.key_width == 0) shape.key_width = shape.query_width;
  if (shape.mlp_width == 0) shape.mlp_width = 4 * shape.width;
  return shape;
}

// Bytes of a token, or of a token and all it looks at. In doubles while they
// are not known to fit, in integers after.
template <typename Number>
class TokenBytes {
 public:
  explicit TokenBytes(const TransformerShape& shape)
      : shape_(shape), e_(N(shape.element_bytes)), h_(N(shape.width)) {}

  Number Layer(bool has_experts) const {
    const Number masks = shape_.dropout ? 2 * h_ : N(0);
    return N(shape_.norms) * Norm(h_) + Attention() +
           (has_experts ? Experts() : Mlp()) + masks;
  }

  // The norm and the head, without logits.
  Number HeadInputs() const { return Norm(h_) + e_ * h_; }
  // From the forward to the backward, and what the backward works on.
  Number KeptLogits() const { return (e_ + 4) * N(shape_.vocab); }
  Number LogitGradients() const { return 8 * N(shape_.vocab); }

 private:
  static Number N(int64_t n) { return static_cast<Number>(n); }

  Number Norm(Number width) const {
    switch (shape_.norm) {
      case NormKind::kLayer:
        break;
      case NormKind::kRms:
        return (4 + e_) * width;
      case NormKind::kRmsInFp32:
        return 8 * width;
    }
    return e_ * width;
  }

  Number Attention() const {
    const Number q = N(shape_.query_width);
    const Number k = N(shape_.key_width);
    Number bytes = e_ * (h_ + q + k);
    if (shape_.value_width == 0) {
      bytes += e_ * (k + q);
    } else {
      // Values; the result, and once more without the width of queries.
      bytes += 3 * e_ * N(shape_.value_width);
    }
    if (shape_.head_norms) bytes += Norm(q + k);
    if (shape_.latent_width > 0) {
      const Number latents = N(shape_.latent_width);
      bytes += Norm(latents) + e_ * latents;
    }
    const Number looked_at = N(shape_.heads) * N(shape_.seq);
    return bytes + (shape_.keeps_scores
                        ? looked_at * (e_ + (shape_.dropout ? 1 + e_ : N(0)))
                        : 4 * N(shape_.heads));
  }

  // Of the inner width.
  Number Inner(Number width) const {
    return e_ * width *
           (shape_.gated_mlp ? N(shape_.gated_copies)
                             : N(shape_.activation_copies) + 1);
  }

  Number Mlp() const { return e_ * h_ + Inner(N(shape_.mlp_width)); }

  Number Experts() const {
    const ExpertShape& experts = shape_.experts;
    Number bytes = e_ * h_ + 4 * N(experts.count);
    if (experts.fp32_router) bytes += 4 * h_ + 8 * N(experts.count);
    if (experts.shared_gate) bytes += e_ * h_;
    bytes += N(experts.used) * (2 * e_ * h_ + Inner(N(experts.width)) + 28);
    if (experts.shared_width > 0) bytes += Inner(N(experts.shared_width));
    return bytes;
  }

  const TransformerShape& shape_;
  const Number e_;
  const Number h_;
};

// Of all tokens of a micro-batch.
template <typename Number>
Number LayerBytes(const TransformerShape& shape, bool has_experts) {
  return static_cast<Number>(shape.batch) * static_cast<Number>(shape.seq) *
         TokenBytes<Number>(shape).Layer(has_experts);
}

template <typename Number>
Number HeadBytes(const TransformerShape& shape) {
  const TokenBytes<Number> token(shape);
  return static_cast<Number>(shape.batch) * static_cast<Number>(shape.seq) *
         (token.HeadInputs() + token.KeptLogits() + token.LogitGradients());
}

// Liger takes as many tokens at a time as make logits no larger than the
// head's input, rounded up to a power of two.
int64_t FusedTokens(const TransformerShape& shape, int64_t tokens) {
  const int64_t parts =
      std::max<int64_t>((shape.vocab + shape.width - 1) / shape.width, 1);
  const auto least = static_cast<uint64_t>((tokens + parts - 1) / parts);
  return std::min(tokens, static_cast<int64_t>(std::bit_ceil(least)));
}

BlockActivations HeadOf(const TransformerShape& shape) {
  const int64_t tokens = shape.batch * shape.seq;
  const TokenBytes<int64_t> token(shape);
  const Bytes inputs(tokens * token.HeadInputs());
  const Bytes hidden(tokens * shape.width * shape.element_bytes);
  const auto logits_of = [&](int64_t rows) { return rows * shape.vocab; };
  BlockActivations bytes;
  switch (shape.loss) {
    case LossKind::kPlain:
      bytes.kept = inputs + Bytes(tokens * token.KeptLogits());
      bytes.working = Bytes(tokens * token.LogitGradients());
      break;
    case LossKind::kChunked: {
      const int64_t rows = std::min(tokens, kChunkOfTokens);
      bytes.kept = inputs;
      bytes.working =
          hidden + Bytes(rows * (token.KeptLogits() + token.LogitGradients()));
      break;
    }
    case LossKind::kFused:
      // The gradients of the head's weight and of its input.
      bytes.kept = inputs + Bytes(shape.element_bytes * logits_of(shape.width));
      bytes.working = Bytes(FusedTokens(shape, tokens) * token.KeptLogits());
      break;
  }
  return bytes;
}

}  // namespace

Status ValidateShape(const TransformerShape& given) {
  constexpr int64_t kMost = int64_t{1} << 31;
  const struct {
    const char* name;
    int64_t value;
    int64_t least;
  } numbers[] = {{"batch", given.batch, 1},
                 {"sequence length", given.seq, 1},
                 {"width", given.width, 1},
                 {"number of heads", given.heads, 1},
                 {"vocabulary", given.vocab, 0},
                 {"width of queries", given.query_width, 0},
                 {"width of keys", given.key_width, 0},
                 {"width of values", given.value_width, 0},
                 {"width of latents", given.latent_width, 0},
                 {"width of the MLP", given.mlp_width, 0},
                 {"number of norms", given.norms, 0},
                 {"number of experts", given.experts.count, 0},
                 {"number of a token's experts", given.experts.used, 0},
                 {"width of experts", given.experts.width, 0},
                 {"width of shared experts", given.experts.shared_width, 0},
                 {"size of an element", given.element_bytes, 1}};
  for (const auto& number : numbers) {
    if (number.value < number.least || number.value > kMost) {
      return InvalidArgument(fmt::format("a {} of {} has no meaning: {} to {}",
                                         number.name, number.value,
                                         number.least, kMost));
    }
  }
  const TransformerShape shape = Filled(given);
  const double most =
      LayerBytes<double>(shape, false) + LayerBytes<double>(shape, true) +
      HeadBytes<double>(shape) +
      static_cast<double>(shape.element_bytes) *
          static_cast<double>(shape.width) * static_cast<double>(shape.vocab);
  if (most > static_cast<double>(kMaxLeased.count())) {
    return InvalidArgument(fmt::format(
        "a layer and the head keep {:.3g} bytes of activations, more than the "
        "{} that a trace can hold: use a smaller batch or shorter sequences",
        most, FormatSize(kMaxLeased)));
  }
  return OkStatus();
}

BlockActivations ActivationsOf(const TransformerShape& given, BlockKind kind,
                               bool has_experts) {
  const TransformerShape shape = Filled(given);
  const int64_t tokens = shape.batch * shape.seq;
  const Bytes input(tokens * shape.width * shape.element_bytes);
  BlockActivations bytes;
  switch (kind) {
    case BlockKind::kEmbedding:
      if (shape.dropout) bytes.kept = Bytes(tokens * shape.width);
      break;
    case BlockKind::kLayer:
      bytes.kept = Bytes(
          LayerBytes<int64_t>(shape, has_experts && shape.experts.count > 0));
      bytes.kept_input = input;
      break;
    case BlockKind::kHead:
      return HeadOf(shape);
    case BlockKind::kOther:
      bytes.kept = input;
      break;
  }
  return bytes;
}

Status SetActivations(const TransformerShape& shape,
                      std::span<ModelBlock> blocks) {
  CASTOR_RETURN_IF_ERROR(ValidateShape(shape));
  for (ModelBlock& block : blocks) {
    block.activations = ActivationsOf(shape, block.kind, block.has_experts);
  }
  return OkStatus();
}

}  // namespace castor
