// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_SEARCH_CHUNK_BOUNDS_H_
#define CASTOR_CHUNK_SEARCH_CHUNK_BOUNDS_H_

// Between which sizes a chunk is searched where nobody says. Pure functions,
// thread-safe.

#include <optional>
#include <span>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/param_spec.h"

namespace castor {

struct ChunkBounds {
  Bytes least;
  Bytes most;
};

// What is tried one after the other until memory suffices. The first search has
// the largest chunks that the model and the budget call for. Each later one has
// half of these, down to the smallest that the model calls for.
//
// The first goes up to a sixteenth of the model, but to 10 MiB at least and 640
// MiB at most: in a step of few chunks little overlaps. All others go up to a
// power of two and a quarter more: a matrix often is a power of two, and its
// bias comes besides. None goes above the power of two below an eighth of the
// budget, and its quarter. A search begins at half of where it ends, and at 32
// MiB at most.
//
// A larger budget tries all that a smaller one tries, so what fits a budget
// fits every larger one.
//
// No chunk is too small for `world` ranks to share. A most that was said is
// tried alone. A least that was said bounds all, and moves the other where they
// would cross. `device_budget`: empty where there is no limit.
std::vector<ChunkBounds> ChunkBoundsFor(Bytes model,
                                        std::optional<Bytes> device_budget,
                                        int world,
                                        std::optional<Bytes> said_least,
                                        std::optional<Bytes> said_most);

// Of all parameters together; what has no size counts nothing.
Bytes ModelBytes(std::span<const ParamSpec> params);

}  // namespace castor

#endif  // CASTOR_CHUNK_SEARCH_CHUNK_BOUNDS_H_
