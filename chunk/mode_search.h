// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_MODE_SEARCH_H_
#define CASTOR_CHUNK_MODE_SEARCH_H_

// Part of the chunk-size search (chunk_size_search.h): what the search of one
// mode is given and what it gives back, and the cost of a choice, counted in
// one place for all modes. Values and pure functions, thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/chunk_packer.h"
#include "chunk/packing_sweep.h"
#include "chunk/search_result.h"

namespace castor {

// One group, and the sizes it may have. ValidatePackSums accepts `sizes` at
// `max_size`.
struct ModeSearchInput {
  std::span<const Elements> sizes;  // of the parameters, in order
  Elements payload;                 // their sum
  DType dtype = DType::kF32;
  Elements min_size;  // multiples of Q; min_size <= max_size
  Elements max_size;
  PackOptions pack;
  int64_t gathered_slots = 3;
};

struct ModeSearch {
  // Choices of this mode worth comparing with those of others: every one on the
  // mode's own Pareto front, by chunk size; `result.best` among them.
  std::vector<ChunkSizeCandidate> candidates;
  ModeResult result;
};

// What the size that `piece` begins with costs, without a reason yet.
ChunkSizeCandidate MakeCandidate(SearchMode mode, const SizePiece& piece,
                                 const ModeSearchInput& input);

// The same for any size. REQUIRES: a positive multiple of Q at which
// ValidatePackSums accepts `input.sizes`.
ChunkSizeCandidate CandidateAt(SearchMode mode, Elements chunk_size,
                               const ModeSearchInput& input);

// Keeps of `candidates` the Pareto front over (allocated, chunks, gathered
// bytes), and the least wasteful (ties to the smallest chunk), by chunk size,
// then mode. Of equal ones the first stays.
std::vector<ChunkSizeCandidate> FrontOf(
    std::vector<ChunkSizeCandidate> candidates);

}  // namespace castor

#endif  // CASTOR_CHUNK_MODE_SEARCH_H_
