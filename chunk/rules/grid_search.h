// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_RULES_GRID_SEARCH_H_
#define CASTOR_CHUNK_RULES_GRID_SEARCH_H_

// Gemini's search: sizes at equal steps, the first of least waste by a next-fit
// without alignment. Pure function, thread-safe.

#include <cstdint>
#include <span>

#include "chunk/base/units.h"

namespace castor {

struct GridChoice {
  Elements chunk_size;
  Elements waste;  // tails of chunks, the last one's included
  int64_t evaluations = 0;
};

// The answer of evaluating every size first, first + step, ... up to `last`,
// got without evaluating them all. A packing stays as it is until some chunk
// grows enough to take the parameter that was refused. Until then waste only
// grows, so the search goes from one such size to the next. REQUIRES:
// 0 < first <= last, step > 0, every size from 0 to `first`, their sum at most
// 2^55.
GridChoice LeastWasteOnGrid(std::span<const Elements> sizes, Elements first,
                            Elements last, Elements step);

}  // namespace castor

#endif  // CASTOR_CHUNK_RULES_GRID_SEARCH_H_
