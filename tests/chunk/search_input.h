// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_CHUNK_SEARCH_INPUT_H_
#define CASTOR_TESTS_CHUNK_SEARCH_INPUT_H_

// What tests of chunk_size_search.h ask with, and what they expect of its
// answers.

#include <cstdint>
#include <variant>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/chunk_size_search.h"
#include "chunk/param_spec.h"
#include "chunk/search/search_certificate.h"
#include "chunk/search/search_result.h"
#include "gtest/gtest.h"
#include "tests/chunk/naive_packing.h"

namespace castor {

// Parameters of one group.
inline std::vector<ParamSpec> ParamsOf(const std::vector<Elements>& sizes,
                                       DType dtype) {
  std::vector<ParamSpec> params;
  for (const Elements size : sizes) {
    params.push_back({"p", {size.count()}, dtype, true});
  }
  return params;
}

// That of one chunk size. REQUIRES: this mode comes first.
inline const SearchCertificate& ProofOf(const GroupSearchResult& group) {
  return std::get<SearchCertificate>(group.modes.at(0).certificate);
}

inline SearchOptions Between(int64_t min, int64_t max) {
  SearchOptions options;
  options.min_chunk = Bytes(min);
  options.max_chunk = Bytes(max);
  return options;
}

// `candidate` costs what brute force says.
inline void ExpectIs(const ChunkSizeCandidate& candidate, const NaiveCost& cost,
                     int64_t payload, DType dtype) {
  EXPECT_EQ(candidate.chunk_size.count(), cost.chunk_size);
  EXPECT_EQ(candidate.chunk_bytes, BytesOf(candidate.chunk_size, dtype));
  EXPECT_EQ(candidate.chunks, cost.chunks);
  EXPECT_EQ(candidate.oversize_chunks, cost.oversize_chunks);
  EXPECT_EQ(candidate.oversize_allocated.count(), cost.oversize_allocated);
  EXPECT_EQ(candidate.allocated.count(), cost.allocated);
  EXPECT_EQ(candidate.waste.count(), cost.allocated - payload);
  EXPECT_EQ(candidate.waste_bytes, BytesToHold(candidate.waste, dtype));
  EXPECT_EQ(candidate.gathered_bytes, BytesOf(Elements(cost.gathered), dtype));
  EXPECT_FALSE(candidate.reason.empty());
  EXPECT_DOUBLE_EQ(candidate.waste_fraction,
                   cost.allocated == 0
                       ? 0
                       : static_cast<double>(cost.allocated - payload) /
                             static_cast<double>(cost.allocated));
}

inline void ExpectAre(const std::vector<ChunkSizeCandidate>& candidates,
                      const std::vector<NaiveCost>& costs, int64_t payload,
                      DType dtype) {
  ASSERT_EQ(candidates.size(), costs.size());
  for (size_t i = 0; i < costs.size(); ++i) {
    ExpectIs(candidates[i], costs[i], payload, dtype);
  }
}

}  // namespace castor

#endif  // CASTOR_TESTS_CHUNK_SEARCH_INPUT_H_
