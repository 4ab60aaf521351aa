// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MEMORY_GATHERED_NEED_H_
#define CASTOR_COLLECTIVES_MEMORY_GATHERED_NEED_H_

// Part of the demand for memory (memory_demand.h).
//
// How many gathered slots a step needs at once, from what the trainer declares
// to hold. Pure, thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/chunk_layout.h"
#include "collectives/zero_options.h"

namespace castor::internal {

// Slots of each class that the declared moments hold at once. A class has one
// at least where chunks of it are gathered or reduced at all. `slot_class` has
// the class of each chunk, by ChunkId. A chunk's gradient is held from the
// first moment that lists one of its parameters to the last, and to the end
// when not all are listed. Where nothing is declared: two parameters and the
// gradients of two chunks at a time. `direct`, by ChunkId: whether the chunk's
// parameters are used where they are and need no slot; empty: none are.
// `grad_class`: that of each chunk's gradient, empty where it is `slot_class`.
// `whole_grads`: gradients of all micro-batches are added up before they are
// reduced, so that from the second on every one is held at every moment.
// `in_place`: gradients are written over parameters, whose slots they have.
std::vector<int64_t> GatheredNeed(const ChunkLayout& layout,
                                  std::span<const int32_t> slot_class,
                                  const std::vector<HeldTogether>& held,
                                  const std::vector<bool>& direct,
                                  std::span<const int32_t> grad_class = {},
                                  bool whole_grads = false,
                                  bool in_place = false);

// Of a step whose moments are declared, by class and moment: slots that are
// held at once. GatheredNeed has the most of each class.
std::vector<std::vector<int64_t>> GatheredByMoment(
    const ChunkLayout& layout, std::span<const int32_t> slot_class,
    const std::vector<HeldTogether>& held, const std::vector<bool>& direct,
    std::span<const int32_t> grad_class, bool whole_grads, bool in_place);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_MEMORY_GATHERED_NEED_H_
