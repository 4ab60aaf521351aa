// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/derive/activation_model.h"

#include <fmt/format.h>

#include "chunk/text/units_text.h"
#include "placement/trace/step_trace.h"

namespace castor {
namespace {

// Widths that were left to their defaults filled in.
TransformerShape Filled(TransformerShape shape) {
  if (shape.query_width == 0) shape.query_width = shape.width;
  if (shape.key_width == 0) shape.key_width = shape.query_width;
  if (shape.mlp_width == 0) shape.mlp_width = 4 * shape.width;
  return shape;
}

// Bytes of a token, or of a token and all it looks at. In doubles while it is
// not known to fit, in integers after.
template <typename Number>
Number LayerBytes(const TransformerShape& shape) {
  const auto number = [](int64_t n) { return static_cast<Number>(n); };
  const Number e = number(shape.element_bytes);
  const Number h = number(shape.width);
  const Number q = number(shape.query_width);
  const Number k = number(shape.key_width);
  const Number f = number(shape.mlp_width);
  const Number norms = 2 * e * h;
  const Number attention = e * (h + q + 2 * k + q);
  const Number mlp = e * (h + (shape.gated_mlp ? 4 : 2) * f);
  const Number masks = shape.dropout ? 2 * h : number(0);
  const Number looked_at = number(shape.heads) * number(shape.seq);
  const Number scores =
      shape.keeps_scores ? looked_at * (e + (shape.dropout ? 1 + e : number(0)))
                         : 4 * number(shape.heads);
  return number(shape.batch) * number(shape.seq) *
         (norms + attention + mlp + masks + scores);
}

template <typename Number>
Number HeadBytes(const TransformerShape& shape) {
  const auto number = [](int64_t n) { return static_cast<Number>(n); };
  return number(shape.batch) * number(shape.seq) *
         (2 * number(shape.element_bytes) * number(shape.width) +
          4 * number(shape.vocab));
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
                 {"width of the MLP", given.mlp_width, 0},
                 {"size of an element", given.element_bytes, 1}};
  for (const auto& number : numbers) {
    if (number.value < number.least || number.value > kMost) {
      return InvalidArgument(fmt::format("a {} of {} has no meaning: {} to {}",
                                         number.name, number.value,
                                         number.least, kMost));
    }
  }
  const TransformerShape shape = Filled(given);
  const double most = LayerBytes<double>(shape) + HeadBytes<double>(shape);
  if (most > static_cast<double>(kMaxLeased.count())) {
    return InvalidArgument(fmt::format(
        "a layer and the head keep {:.3g} bytes of activations, more than the "
        "{} that a trace can hold: use a smaller batch or shorter sequences",
        most, FormatSize(kMaxLeased)));
  }
  return OkStatus();
}

BlockActivations ActivationsOf(const TransformerShape& given, BlockKind kind) {
  const TransformerShape shape = Filled(given);
  const int64_t tokens = shape.batch * shape.seq;
  const Bytes input(tokens * shape.width * shape.element_bytes);
  BlockActivations bytes;
  switch (kind) {
    case BlockKind::kEmbedding:
      if (shape.dropout) bytes.kept = Bytes(tokens * shape.width);
      break;
    case BlockKind::kLayer:
      bytes.kept = Bytes(LayerBytes<int64_t>(shape));
      bytes.kept_input = input;
      break;
    case BlockKind::kHead:
      bytes.kept = Bytes(HeadBytes<int64_t>(shape));
      break;
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
    block.activations = ActivationsOf(shape, block.kind);
  }
  return OkStatus();
}

}  // namespace castor
