// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_DERIVE_MODEL_BLOCKS_H_
#define CASTOR_PLACEMENT_DERIVE_MODEL_BLOCKS_H_

// The blocks of a model that nobody described, found from its parameters: what
// repeats by number in their names ("h.3.", "model.layers.17.", "blk.0.") is a
// layer each; where names have no numbers, sizes that repeat back to back are
// (chunk/search/layer_repeat.h). Blocks follow each other as their parameters
// were registered. Pure function, thread-safe. Part of the model of a step
// (step_model.h).

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/param_spec.h"
#include "placement/derive/step_model.h"

namespace castor {

// A name that shares the parameter `param`: a head tied to the embedding.
struct TiedParam {
  std::string name;
  ParamId param;
};

// What a trainer acquires at a time.
enum class HoldUnit : uint8_t {
  kBlock,   // the whole of a block, forward and backward
  kModule,  // the parameters that share a name up to its last dot: a weight and
            // its bias
};

// Parameters outside the layers make an embedding in front and a head behind,
// whatever the order in which they are listed (weight files sort by name, OPT
// registers its last norm before its layers): names tell which, and where they
// do not, whether the parameter stands before the first layer or behind it.
// What stands between two stacks of layers is a block there.
//
// On its way back a unit holds what it held on its way there, and all its
// gradients are open, but for an embedding's tables, which are indexed and not
// needed again. A tied name stands where a parameter of its name would, and
// uses the parameter it shares.
//
// Where nothing repeats, the model is one block or, held by module, every
// module is one. Activations and times are left at 0. REQUIRES: shapes that
// CountElements accepts; tied ids below the number of parameters.
std::vector<ModelBlock> FindModelBlocks(std::span<const ParamSpec> params,
                                        std::span<const TiedParam> tied,
                                        HoldUnit unit);

// A list says nothing of ties. A model whose head has no table of its own is
// taken to use the embedding's, whose gradient is then open on all of the way
// back: a trainer never holds more because a table is not shared.
std::optional<TiedParam> SuspectedTie(std::span<const ParamSpec> params);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_DERIVE_MODEL_BLOCKS_H_
