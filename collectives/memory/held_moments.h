// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MEMORY_HELD_MOMENTS_H_
#define CASTOR_COLLECTIVES_MEMORY_HELD_MOMENTS_H_

// Part of the memory plan (memory_plan.h).
//
// What a trainer declares at Seal, from a description of what it does with
// parameters: the moments of the step that DeriveStep derives from the same
// blocks. Pure function, thread-safe.

#include <span>
#include <vector>

#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/zero_options.h"
#include "placement/derive/step_model.h"
#include "placement/trace.h"

namespace castor {

// Of one micro-batch, or of all where they go through the model together.
// REQUIRES: DeriveStep accepts the blocks for a layout of `params`.
std::vector<HeldTogether> HeldMomentsOf(std::span<const ParamSpec> params,
                                        std::span<const ModelBlock> blocks,
                                        const StepShape& shape);

// The same from a recorded step: what its first micro-batch held, chunk by
// chunk, which is what a trainer declares that knows what it does. REQUIRES:
// ValidateStep accepts the trace for the layout's chunks.
std::vector<HeldTogether> HeldMomentsOf(const ChunkLayout& layout,
                                        const Trace& trace);

// Whether the last moment holds all gradients that any moment holds, and no
// parameters. A trainer says so where ranks may lack gradients that others
// have: these wait for the flush.
bool EndsWithAllGrads(std::span<const HeldTogether> held);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_MEMORY_HELD_MOMENTS_H_
