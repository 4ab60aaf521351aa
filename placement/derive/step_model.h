// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_DERIVE_STEP_MODEL_H_
#define CASTOR_PLACEMENT_DERIVE_STEP_MODEL_H_

// A step's trace derived without running it: from a layout and a description of
// what the trainer does with parameters, block by block in forward order. What
// a trainer of that description has its engine record is the same trace,
// access by access (the engine's own rules are in access_recorder.h). Values
// and pure functions, thread-safe.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "placement/trace/step_trace.h"

namespace castor {

// One operation's way with parameters: it holds `hold`, opens the gradients of
// `grads` one by one, computes, hands back those that are complete in reverse,
// as scopes end, and lets go of what it held. A gradient is complete where no
// later operation of the micro-batch opens it; frozen parameters have none.
struct ParamUse {
  std::vector<ParamId> hold;
  std::vector<ParamId> grads;

  friend bool operator==(const ParamUse&, const ParamUse&) = default;
};

enum class BlockKind : uint8_t {
  kEmbedding,
  kLayer,  // what repeats: the part that is recomputed where anything is
  kHead,   // from the last layer to the loss
  kOther,
};

// Bytes that the computation has on the device, apart from parameters.
struct BlockActivations {
  Bytes kept;        // from the block's forward to its backward
  Bytes kept_input;  // of it, what remains where the block is recomputed
  Bytes working;     // more, only while it computes
};

struct ModelBlock {
  std::string name;  // "model.layers.3", for people
  BlockKind kind = BlockKind::kOther;
  std::vector<ParamUse> forward = {};
  std::vector<ParamUse> backward = {};
  bool has_experts = false;  // a mixture of experts in place of one MLP
  BlockActivations activations = {};
  // How long a micro-batch computes there; 0 in all blocks: nobody knows.
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;  // without recomputation
};

enum class BatchOrder : uint8_t {
  // A micro-batch goes forward and backward through the whole model before the
  // next one begins.
  kBatchMajor,
  // A block is done with all micro-batches before the next block begins (L2L,
  // Pudipeddi et al. 2020; GreedySnake): parameters are fetched once for all of
  // them, and activations of all are kept. To the engine it is one micro-batch.
  kLayerMajor,
};

struct StepShape {
  int64_t micro_batches = 1;
  BatchOrder order = BatchOrder::kBatchMajor;
  // Layers keep only their input, and go forward again before their backward
  // (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost").
  bool recompute = false;
  // Gradients of all micro-batches are added up, whole, and reduced once.
  bool whole_grads = false;
  // Gradients are written over the parameters: an operation lets go of what it
  // holds before it opens them, and nothing of that is held again.
  bool grads_in_place = false;
  // On the device all the time: inputs, workspaces of libraries.
  Bytes resident = {};
};

// What a trainer says itself that a micro-batch does: all its operations, in
// order. Where `grads_in_place` holds, gradients are written over parameters.
struct DeclaredStep {
  std::vector<ParamUse> uses;
  bool grads_in_place = false;

  friend bool operator==(const DeclaredStep&, const DeclaredStep&) = default;
};

// One block, whose way back begins with the first operation that opens a
// gradient.
std::vector<ModelBlock> BlocksOf(const DeclaredStep& step);

// The trace of one step. Bytes on lease are `resident` and what the blocks'
// activations come to at each moment; compute times are there where a block has
// any. No block is gone backward through that lies before the first one with a
// trainable parameter. InvalidArgument where a block names a parameter that the
// layout does not have, where there is no micro-batch, where the activations
// come to more than kMaxLeased, or where gradients are written over parameters
// that are held again.
Result<StepTrace> DeriveStep(const ChunkLayout& layout,
                             std::span<const ModelBlock> blocks,
                             const StepShape& shape);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_DERIVE_STEP_MODEL_H_
