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
// search enumerates those pieces (chains-on-chains breakpoints) instead of
// sizes. Pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_packer.h"
#include "chunk/param_spec.h"
#include "chunk/search_certificate.h"

namespace castor {

struct SearchOptions {
  Bytes min_chunk = MiB(32);   // of the group's dtype; rounded up to Q
  Bytes max_chunk = MiB(512);  // rounded down to Q
  PackOptions pack;
  // When given, `recommended` must have gathered_bytes within it.
  std::optional<Bytes> device_budget;
};

// One chunk size and what it costs.
struct ChunkSizeCandidate {
  Elements chunk_size;
  Bytes chunk_bytes;
  int64_t chunks = 0;
  int64_t oversize_chunks = 0;
  Elements allocated;
  Elements waste;
  Bytes waste_bytes;
  double waste_fraction = 0;  // waste over allocated; 0 when nothing is
  // Three slots of C plus one per oversize class (distinct oversize size).
  Bytes gathered_bytes;
  std::string reason;  // why it is listed, in a few words
};

// The answer for one group.
struct GroupSearchResult {
  DType dtype = DType::kF32;
  bool trainable = true;
  int64_t params = 0;
  Elements payload;
  // Pareto front over (waste, chunk count, gathered_bytes), by chunk size.
  std::vector<ChunkSizeCandidate> candidates;
  ChunkSizeCandidate best;         // least waste, ties to the smallest chunk
  ChunkSizeCandidate recommended;  // smallest candidate within 0.5 % of the
                                   // payload of best's waste that fits
  SearchCertificate certificate;   // proves best
};

struct SearchResult {
  std::vector<GroupSearchResult> groups;  // as GroupParams orders them
  // Why `recommended` was chosen, for people.
  std::string recommended_rule;
};

// InvalidArgument where min > max after rounding, or options are not valid.
// A group whose packed size is below min is one chunk of that size rounded up
// to Q. An empty list has no groups. Infeasible where a device budget is given
// and no candidate's gathered_bytes fit it; the message names the least one.
Result<SearchResult> SearchChunkSize(std::span<const ParamSpec> params,
                                     const SearchOptions& options);

}  // namespace castor

#endif  // CASTOR_CHUNK_CHUNK_SIZE_SEARCH_H_
