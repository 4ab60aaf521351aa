// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_DERIVE_ACTIVATION_MODEL_H_
#define CASTOR_PLACEMENT_DERIVE_ACTIVATION_MODEL_H_

// What a transformer keeps for its way back, in bytes, by the formula of
// Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
// Transformer Models", section 4, on one device. With s tokens per sequence, b
// sequences, width h, a heads and e bytes per element, a layer keeps
//
//   layer norms      2e sbh                   their inputs
//   attention        (e + 3e + e) sbh         input of q, k, v; those; the
//                                             projection's input
//                    e a s^2 b                softmax's result
//                    (1 + e) a s^2 b          its dropout: mask and result
//   mlp              (e + 4e + 4e) sbh        inputs of its two products, and
//                                             of its activation
//   dropouts         2 sbh                    masks, a byte each
//
// that is sbh (34 + 5 a s / h) at e = 2, the paper's equation 1. Keys and
// values may be narrower than h, the MLP wider or gated (gate, gate after its
// activation, other half, and their product are kept then), dropouts and scores
// absent. Behind the last layer a norm and the head keep their inputs, and the
// loss keeps logits in fp32: 2e sbh + 4 sbv. Before the first the embedding's
// dropout keeps a mask. A recomputed layer keeps its input, e sbh. What kernels
// use besides is not counted. Values and pure functions, thread-safe. Part of
// the model of a step (step_model.h).

#include <cstdint>
#include <span>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "placement/derive/step_model.h"

namespace castor {

struct TransformerShape {
  int64_t batch = 1;        // b, of one micro-batch on one rank
  int64_t seq = 0;          // s
  int64_t width = 0;        // h
  int64_t heads = 0;        // a
  int64_t vocab = 0;        // v
  int64_t query_width = 0;  // heads times their width; 0: h
  int64_t key_width = 0;    // of keys, and of values; 0: as queries
  int64_t mlp_width = 0;    // 0: 4 h
  bool gated_mlp = false;
  bool dropout = true;
  // Whether softmax's results are kept at all. Fused kernels (Dao et al. 2022,
  // FlashAttention) compute them again and keep 4 bytes per row: 4 a s b.
  bool keeps_scores = true;
  int64_t element_bytes = 2;  // e
};

// InvalidArgument, naming the number, where the shape is none or its bytes come
// to more than kMaxLeased in a block.
Status ValidateShape(const TransformerShape& shape);

// Of one block of that kind; a block of another kind keeps its input. REQUIRES:
// a valid shape.
BlockActivations ActivationsOf(const TransformerShape& shape, BlockKind kind);

// Sets the activations of every block.
Status SetActivations(const TransformerShape& shape,
                      std::span<ModelBlock> blocks);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_DERIVE_ACTIVATION_MODEL_H_
