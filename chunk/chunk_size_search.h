// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_CHUNK_SIZE_SEARCH_H_
#define CASTOR_CHUNK_CHUNK_SIZE_SEARCH_H_

// The exact chunk-size search: for every group of parameters the chunk sizes
// worth having, found by the modes asked for, each exact within its
// own definition and with a certificate that says why. Pure functions,
// thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "chunk/search/search_result.h"

namespace castor {

// A search recommends the smallest chunk that wastes at most 1 % of a group
// more than the best, or one up to a quarter larger that wastes less. The sizes
// of SearchMode::kLayer count where they are 8 MiB or min_chunk, whichever is
// less, to max_chunk. Others are recommended only where nothing else fits.
struct SearchOptions {
  Bytes min_chunk = MiB(32);   // of the group's dtype; rounded up to Q
  Bytes max_chunk = MiB(512);  // rounded down to Q
  PackOptions pack;
  // When given, the gathered_bytes of what is recommended, all groups together,
  // are within it.
  std::optional<Bytes> device_budget = {};
  std::vector<SearchMode> modes = {SearchMode::kUniform};
  int64_t gathered_slots = 3;  // gathered chunks held at once, 1 or more
};

// InvalidArgument where min > max after rounding, or options are not valid;
// Malformed where a shape is. A group whose packed size is below min is one
// chunk of that size rounded up to Q in SearchMode::kUniform. An empty list has
// no groups. Infeasible where no mode asked for exists in a group
// (SearchMode::kLayer alone, and nothing repeats), or where no choice of
// candidates, one for each group, fits the device budget. The message names the
// least budget that would.
Result<SearchResult> SearchChunkSize(std::span<const ParamSpec> params,
                                     const SearchOptions& options);

// What `chunk_size` costs one group of GroupParams(params), to stand beside the
// candidates of a search; without a reason. InvalidArgument where a sum could
// overflow, Malformed where a shape is. REQUIRES: `pack` is valid, `chunk_size`
// a positive multiple of Q, gathered_slots > 0.
Result<ChunkSizeCandidate> CostOfChunkSize(std::span<const ParamSpec> params,
                                           const ParamGroup& group,
                                           Elements chunk_size,
                                           const PackOptions& pack,
                                           int64_t gathered_slots);

}  // namespace castor

#endif  // CASTOR_CHUNK_CHUNK_SIZE_SEARCH_H_
