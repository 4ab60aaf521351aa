// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_CHUNK_SEARCH_INPUT_H_
#define CASTOR_TESTS_CHUNK_SEARCH_INPUT_H_

// What tests of chunk_size_search.h ask with, and the proof in its answers.

#include <cstdint>
#include <variant>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/chunk_size_search.h"
#include "chunk/param_spec.h"
#include "chunk/search_certificate.h"
#include "chunk/search_result.h"

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

}  // namespace castor

#endif  // CASTOR_TESTS_CHUNK_SEARCH_INPUT_H_
