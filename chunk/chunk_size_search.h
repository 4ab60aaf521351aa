// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_CHUNK_SIZE_SEARCH_H_
#define CASTOR_CHUNK_CHUNK_SIZE_SEARCH_H_

// The exact chunk-size search: the chunk sizes worth having of every family of
// groups (size_family.h). Each mode is exact within its own definition, and has
// a certificate that says why. Pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/layout/size_family.h"
#include "chunk/param_spec.h"
#include "chunk/search/search_result.h"

namespace castor {

// A search recommends the smallest chunk that wastes at most 1 % of a group
// more than the best, or one up to a quarter larger that wastes less. The sizes
// of SearchMode::kLayer count where they are 8 MiB or min_chunk, whichever is
// less, to max_chunk. Others are recommended only where nothing else fits.
struct SearchOptions {
  // Of the family's dtype, in multiples of its quantum. Where the largest
  // parameter that stays whole needs more than either, that is the bound.
  Bytes min_chunk = MiB(32);   // rounded up
  Bytes max_chunk = MiB(512);  // rounded down
  PackOptions pack;
  // When given, the gathered_bytes of what is recommended, all groups together,
  // are within it.
  std::optional<Bytes> device_budget = {};
  std::vector<SearchMode> modes = {SearchMode::kUniform};
  int64_t gathered_slots = 3;  // gathered chunks held at once, 1 or more
};

// InvalidArgument where min > max after rounding, or options are not valid;
// Malformed where a shape is. Where one chunk of min holds each group of a
// family, SearchMode::kUniform has the least size of which that is true. An
// empty list has no families. Infeasible where no mode asked for exists for a
// family (SearchMode::kLayer alone, and nothing repeats), or where no choice of
// candidates, one for each family, fits the device budget. The message names
// the least budget that would.
Result<SearchResult> SearchChunkSize(std::span<const ParamSpec> params,
                                     const SearchOptions& options);

// What `chunk_size` costs a family, to stand beside the candidates of a search;
// without a reason. InvalidArgument where a sum could overflow. REQUIRES:
// `pack` is valid, the family allows `chunk_size`, gathered_slots > 0.
Result<ChunkSizeCandidate> CostOfChunkSize(const SizeFamily& family,
                                           Elements chunk_size,
                                           const PackOptions& pack,
                                           int64_t gathered_slots);

}  // namespace castor

#endif  // CASTOR_CHUNK_CHUNK_SIZE_SEARCH_H_
