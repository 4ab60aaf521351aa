// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHUNK_BOUNDS_H_
#define CASTOR_COLLECTIVES_CHUNK_BOUNDS_H_

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

// What is tried one after the other until memory suffices: from the largest
// chunks that the budget calls for down to the smallest that the model calls
// for, each half of the one before. A largest chunk is a power of two, which is
// at most 512 MiB, an eighth of the budget and the model, and a quarter more: a
// matrix often is a power of two, and its bias comes besides. The smallest of a
// search is half of its largest, and at most 32 MiB.
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

#endif  // CASTOR_COLLECTIVES_CHUNK_BOUNDS_H_
