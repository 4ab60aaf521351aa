// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_MODE_SEARCH_H_
#define CASTOR_CHUNK_MODE_SEARCH_H_

// What the search of one mode is given and what it gives back; and the cost of
// a choice, counted in one place for all modes. Values and pure functions,
// thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/chunk_packer.h"
#include "chunk/search_mode.h"
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

// What a choice packs to, from which all of its costs follow.
struct PackedChoice {
  SearchMode mode = SearchMode::kUniform;
  Elements chunk_size;
  int64_t chunks = 0;  // oversize ones aside
  int64_t oversize_chunks = 0;
  Elements oversize_allocated;
  Elements oversize_sizes;  // the sum of their distinct sizes
};

// The candidate, without a reason yet.
ChunkSizeCandidate MakeCandidate(const PackedChoice& choice,
                                 const ModeSearchInput& input);

// Keeps of `candidates` the Pareto front over (allocated, chunks, gathered
// bytes), and the least wasteful (ties to the smallest chunk), by chunk size,
// then mode. Of equal ones the first stays.
std::vector<ChunkSizeCandidate> FrontOf(
    std::vector<ChunkSizeCandidate> candidates);

}  // namespace castor

#endif  // CASTOR_CHUNK_MODE_SEARCH_H_
