// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_SEARCH_SEARCH_RESULT_H_
#define CASTOR_CHUNK_SEARCH_SEARCH_RESULT_H_

// Part of the chunk-size search (chunk_size_search.h).
// What a chunk-size search answers: never one number alone but the choices
// worth having, the best of each mode with its proof, and one recommended.
// Values.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/search/layer_certificate.h"
#include "chunk/search/search_certificate.h"

namespace castor {

// The two ways in which a chunk size is chosen.
enum class SearchMode : uint8_t {
  kUniform,  // one size in [min, max]
  kLayer,    // the sizes that hold one repeat of a layer in 1 to 8 chunks
};

constexpr std::string_view SearchModeName(SearchMode mode) {
  return mode == SearchMode::kUniform ? "uniform" : "layer";
}

// One chunk size and what it costs.
struct ChunkSizeCandidate {
  SearchMode mode = SearchMode::kUniform;
  Elements chunk_size;
  Bytes chunk_bytes;
  int64_t chunks = 0;  // oversize ones included
  int64_t oversize_chunks = 0;
  Elements allocated;
  Elements oversize_allocated;  // of it, in oversize chunks
  Elements waste;
  Bytes waste_bytes;
  double waste_fraction = 0;  // waste over allocated; 0 when nothing is
  // SearchOptions::gathered_slots slots of the chunk size, and one for each
  // distinct size of oversize chunks.
  Bytes gathered_bytes;
  // Whether it is as large as a search recommends: see SearchOptions.
  bool suits = true;
  std::string reason;  // why it is listed, in a few words
};

// The best of one mode, exact within the mode's own definition.
struct ModeResult {
  SearchMode mode = SearchMode::kUniform;
  ChunkSizeCandidate best;     // least waste, ties to the smallest chunk
  Elements lower_bound_waste;  // nothing the mode allows wastes less
  bool optimal = false;        // the bound equals what `best` wastes
  // Of the type that belongs to `mode`.
  std::variant<SearchCertificate, LayerCertificate> certificate;
};

// The answer for one family of groups (size_family.h).
struct GroupSearchResult {
  DType dtype = DType::kF32;
  bool trainable = true;
  int64_t params = 0;
  Elements payload;
  // Those asked for that exist, in the order of SearchMode: a group in which
  // nothing repeats has no SearchMode::kLayer.
  std::vector<ModeResult> modes;
  // Pareto front of all modes over (waste, chunk count, gathered_bytes), by
  // chunk size; and the best of each mode, dominated or not. Modelled transfer
  // time grows with allocated bytes and with chunks, so its front is within
  // this one.
  std::vector<ChunkSizeCandidate> candidates;
  // One of them: least waste, ties to the smallest chunk.
  ChunkSizeCandidate best;
  // One of them, as SearchOptions says, that fits the device budget. Where none
  // so near the best fits, the least wasteful that does.
  ChunkSizeCandidate recommended;
};

struct SearchResult {
  std::vector<GroupSearchResult> groups;  // as SizeFamilies orders them
  // Why `recommended` was chosen, for people.
  std::string recommended_rule;
};

}  // namespace castor

#endif  // CASTOR_CHUNK_SEARCH_SEARCH_RESULT_H_
