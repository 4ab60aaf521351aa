// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_SEARCH_PACKING_SWEEP_H_
#define CASTOR_CHUNK_SEARCH_PACKING_SWEEP_H_

// Part of the chunk-size search (chunk_size_search.h).
// Next-fit at every allowed chunk size in one sweep. While C grows, a chunk
// changes only when the first parameter after it comes to fit, which happens
// at one known size; then the chunks after it shift until their borders meet
// old ones again, which they soon do. So the sweep keeps the packing at the
// current size and an agenda of those sizes, and repairs instead of packing
// anew. An oversize parameter is a chunk that changes when C reaches its size.
// Pure function, thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"

namespace castor {

// A range of allowed sizes at which packing gives the same counts: from `from`
// up to the next piece's, exclusive.
struct SizePiece {
  Elements from;
  int64_t chunks = 0;  // ordinary ones
  int64_t oversize_chunks = 0;
  Elements oversize_allocated;
  Elements oversize_classes;  // the sum of their distinct sizes

  Elements AllocatedAtFrom() const {
    return from * chunks + oversize_allocated;
  }
};

// The pieces of [min_size, max_size], by size; two neighbours differ in their
// counts. REQUIRES: valid options; min_size <= max_size, positive multiples of
// Q; sizes >= 0 that ValidatePackSums accepts at max_size.
std::vector<SizePiece> SweepChunkSizes(std::span<const Elements> sizes,
                                       Elements min_size, Elements max_size,
                                       const PackOptions& options);

}  // namespace castor

#endif  // CASTOR_CHUNK_SEARCH_PACKING_SWEEP_H_
