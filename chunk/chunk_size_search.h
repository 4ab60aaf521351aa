// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_CHUNK_SIZE_SEARCH_H_
#define CASTOR_CHUNK_CHUNK_SIZE_SEARCH_H_

// The exact chunk-size search: which allowed C wastes least, over every allowed
// C and not a sample of them, and a certificate that says why.
//
// Between two neighbouring distinct parameter sizes the set of oversize
// parameters is fixed, so next-fit's chunk count is non-increasing in C there
// (greedy is optimal for a fixed order) and waste grows with C while the count
// stays: the optimum is at the left end of a piece of constant count. The
// search enumerates those pieces (chunk/packing_sweep.h) instead of sizes. Pure
// functions, thread-safe.

#include <optional>
#include <span>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_packer.h"
#include "chunk/param_spec.h"
#include "chunk/search_result.h"

namespace castor {

struct SearchOptions {
  Bytes min_chunk = MiB(32);   // of the group's dtype; rounded up to Q
  Bytes max_chunk = MiB(512);  // rounded down to Q
  PackOptions pack;
  // When given, the gathered_bytes of what is recommended, all groups together,
  // are within it.
  std::optional<Bytes> device_budget;
};

// InvalidArgument where min > max after rounding, or options are not valid;
// Malformed where a shape is. A group whose packed size is below min is one
// chunk of that size rounded up to Q. An empty list has no groups. Infeasible
// where a device budget is given that no choice of candidates, one for each
// group, fits; the message names the least that would.
Result<SearchResult> SearchChunkSize(std::span<const ParamSpec> params,
                                     const SearchOptions& options);

}  // namespace castor

#endif  // CASTOR_CHUNK_CHUNK_SIZE_SEARCH_H_
