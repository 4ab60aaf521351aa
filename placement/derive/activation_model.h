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
// that is sbh (34 + 5 a s / h) at e = 2, the paper's equation 1. Models since
// then differ. The other terms were measured with autograd's saved tensors in
// transformers 5.24 on a CPU:
//
//   RMS norms        (4 + e) sbh              input in fp32, and result; 8 sbh
//                                             where the product is in fp32
//   of q and k       (4 + e) sb (q + k)       where they have norms
//   latents          (4 + 2e) sb l            of queries, keys and values
//   gated mlp        (e h + 4e f) sb          gate, gate after its activation,
//                                             other half, product
//   experts          e sbh + 4n sb            the router's input and softmax
//                    t sb (2e h + 4e f + 28)  each of a token's t experts:
//                                             rows in and out, gate and product
//   shared expert    4e sb f                  and e sbh where a gate scales it
//   router in fp32   4 sbh + 8n sb
//
// Before the first layer the embedding's dropout keeps a mask. A recomputed
// layer keeps its input, e sbh. Behind the last layer a norm and the head keep
// their inputs. The loss keeps logits, e sbv, which the model gives as output,
// and their log-softmax in fp32, 4 sbv; on its way back it works on gradients
// of both, 8 sbv. What kernels use besides is not counted. Values and pure
// functions, thread-safe. Part of the model of a step (step_model.h).

#include <cstdint>
#include <span>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "placement/derive/step_model.h"

namespace castor {

enum class NormKind : uint8_t {
  kLayer,
  kRms,
  kRmsInFp32,  // multiplies by its weight in fp32, as Gemma and gpt_oss do
};

// How logits become a loss.
enum class LossKind : uint8_t {
  kPlain,    // all logits at once
  kChunked,  // 256 tokens at a time, whose logits are computed again
  // As Liger's kernel (Hsu et al. 2024): a few tokens at a time, with the
  // gradients of the head in the forward.
  kFused,
};

// The experts of a layer that has some.
struct ExpertShape {
  int64_t count = 0;  // n; 0: no layer has any
  int64_t used = 0;   // t, by a token
  int64_t width = 0;  // f of each
  int64_t shared_width = 0;
  bool shared_gate = false;  // whose product with the shared result is kept
  // The router's input is converted, and scores are a sigmoid's.
  bool fp32_router = false;
};

struct TransformerShape {
  int64_t batch = 1;         // b, of one micro-batch on one rank
  int64_t seq = 0;           // s
  int64_t width = 0;         // h
  int64_t heads = 0;         // a
  int64_t vocab = 0;         // v
  int64_t query_width = 0;   // heads times their width; 0: h
  int64_t key_width = 0;     // of keys, and of values; 0: as queries
  int64_t value_width = 0;   // where values have another; 0: as keys
  int64_t latent_width = 0;  // l; 0: there are none
  int64_t mlp_width = 0;     // f; 0: 4 h
  bool gated_mlp = false;
  // Inputs of the activation function that its formula keeps; 4 of GPT-2's.
  int64_t activation_copies = 1;
  // What a gated MLP keeps of its inner width; more where gates are clamped.
  int64_t gated_copies = 4;
  NormKind norm = NormKind::kLayer;
  int64_t norms = 2;  // of a layer
  bool head_norms = false;
  // Some layers have a state space or linear attention, which are counted as
  // attention.
  bool other_mixers = false;
  ExpertShape experts = {};
  LossKind loss = LossKind::kPlain;
  bool dropout = true;
  // Whether softmax's results are kept at all. Fused kernels (Dao et al. 2022,
  // FlashAttention) compute them again and keep 4 bytes per row: 4 a s b.
  bool keeps_scores = true;
  int64_t element_bytes = 2;  // e
};

// InvalidArgument, naming the number, where the shape is none or its bytes come
// to more than kMaxLeased in a block.
Status ValidateShape(const TransformerShape& shape);

// Of one block; a block of another kind than those above keeps its input. A
// layer has experts where its parameters do. REQUIRES: a valid shape.
BlockActivations ActivationsOf(const TransformerShape& shape, BlockKind kind,
                               bool has_experts = false);

// Sets the activations of every block.
Status SetActivations(const TransformerShape& shape,
                      std::span<ModelBlock> blocks);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_DERIVE_ACTIVATION_MODEL_H_
