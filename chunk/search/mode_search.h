// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_SEARCH_MODE_SEARCH_H_
#define CASTOR_CHUNK_SEARCH_MODE_SEARCH_H_

// Part of the chunk-size search (chunk_size_search.h): the search of each mode,
// the input and the answer of a search, and the cost of a choice, counted in
// one place for all modes. Values and pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/layout/size_family.h"
#include "chunk/search/packing_sweep.h"
#include "chunk/search/search_certificate.h"
#include "chunk/search/search_result.h"

namespace castor {

// The groups of one family (size_family.h), and the sizes it may have.
// ValidateFamilySums accepts it at `max_size`.
struct ModeSearchInput {
  std::span<const PackedGroup> groups;
  Elements payload;  // the sum of all sizes
  DType dtype = DType::kF32;
  Elements quantum{128};
  Elements min_size;  // multiples of the quantum; min_size <= max_size
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

// The same for any size. REQUIRES: a size that the family allows, at which
// ValidateFamilySums accepts it.
ChunkSizeCandidate CandidateAt(SearchMode mode, Elements chunk_size,
                               const ModeSearchInput& input);

// Keeps of `candidates` the Pareto front over (allocated, chunks, gathered
// bytes), and the least wasteful (ties to the smallest chunk), by chunk size,
// then mode. Of equal ones the first stays.
std::vector<ChunkSizeCandidate> FrontOf(
    std::vector<ChunkSizeCandidate> candidates);

// --- The modes --------------------------------------------------------------

// One chunk size: which allowed C wastes least, over every allowed C and not a
// sample of them, and a certificate that says why.
//
// Between two neighbouring distinct parameter sizes the set of oversize
// parameters is fixed. Next-fit's chunk count is non-increasing in C there:
// greedy is optimal for a fixed order. Waste grows with C while the count
// stays, so the optimum is at the left end of a piece of constant count. The
// search enumerates those pieces (family_pieces.h) instead of sizes.
ModeSearch SearchUniform(const ModeSearchInput& input);

// The certificate of the least waste among `pieces`, which end at `max_size`:
// the fewest intervals whose bounds still reach it. `payload` is the sum of the
// parameters' sizes. REQUIRES: pieces as FamilyPieces makes them of sizes that
// are multiples of `quantum`.
SearchCertificate BuildCertificate(std::span<const SizePiece> pieces,
                                   Elements max_size, Elements payload,
                                   Elements quantum);

// Chunk sizes that hold a layer in a whole number of chunks, where a sequence
// of sizes repeats back to back (layer_repeat.h). C_m is the least multiple of
// Q at which next-fit packs one repeat, by itself, into at most m chunks. None
// of its parameters is oversize then; m is 1 to 8. Each C_m is then packed with
// the whole group, in which chunks need not begin where a repeat does.
//
// The distinct C_m as candidates and a step of the certificate for every m.
// `input.min_size` and `input.max_size` do not apply: C_m is what the layer
// makes it. Empty where no sequence with elements repeats, and where packing
// the group at C_1, the largest, could overflow a sum of elements or bytes.
// Empty, too, for several groups, and where parameters stay whole.
//
// C_m is found by bisection: the number of chunks never rises with C while
// nothing is oversize (greedy is optimal for a fixed order).
std::optional<ModeSearch> SearchLayer(const ModeSearchInput& input);

}  // namespace castor

#endif  // CASTOR_CHUNK_SEARCH_MODE_SEARCH_H_
