// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_LAYER_SEARCH_H_
#define CASTOR_CHUNK_LAYER_SEARCH_H_

// Part of the chunk-size search (chunk_size_search.h).
// Chunk sizes that hold a layer in a whole number of chunks: where a sequence
// of sizes repeats back to back (chunk/layer_repeat.h), C_m is the least
// multiple of Q at which next-fit packs one repeat, by itself, into at most m
// chunks, none of its parameters oversize; m is 1 to 8. Each C_m is then packed
// with the whole group, in which chunks need not begin where a repeat does.
// Pure function, thread-safe.

#include <optional>

#include "chunk/mode_search.h"

namespace castor {

// The distinct C_m as candidates and a step of the certificate for every m.
// `input.min_size` and `input.max_size` do not apply: C_m is what the layer
// makes it. Empty where no sequence with elements repeats, and where packing
// the group at C_1, the largest, could overflow a sum of elements or bytes.
//
// C_m is found by bisection: the number of chunks never rises with C while
// nothing is oversize (greedy is optimal for a fixed order).
std::optional<ModeSearch> SearchLayer(const ModeSearchInput& input);

}  // namespace castor

#endif  // CASTOR_CHUNK_LAYER_SEARCH_H_
