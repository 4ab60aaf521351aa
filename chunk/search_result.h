// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_SEARCH_RESULT_H_
#define CASTOR_CHUNK_SEARCH_RESULT_H_

// What a chunk-size search answers: never one number alone but the choices
// worth having, the best of them with its proof, and one recommended. Values.

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/search_certificate.h"

namespace castor {

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
  // Pareto front over (waste, chunk count, gathered_bytes), by chunk size; and
  // `best`, where an equally wasteful larger chunk dominates it.
  std::vector<ChunkSizeCandidate> candidates;
  // One of them: least waste, ties to the smallest chunk.
  ChunkSizeCandidate best;
  // One of them: the smallest within 0.5 % of the payload above best's waste
  // that fits the device budget; where none of those fits, the least wasteful
  // that does.
  ChunkSizeCandidate recommended;
  SearchCertificate certificate;  // proves best
};

struct SearchResult {
  std::vector<GroupSearchResult> groups;  // as GroupParams orders them
  // Why `recommended` was chosen, for people.
  std::string recommended_rule;
};

}  // namespace castor

#endif  // CASTOR_CHUNK_SEARCH_RESULT_H_
