// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// A program outside the repository that searches the chunk size of a small
// model. Prints the number of chunks that the search recommends.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/chunk_size_search.h"

int main() {
  std::vector<castor::ParamSpec> params;
  for (int p = 0; p < 4; ++p) {
    params.push_back({.name = "p" + std::to_string(p), .shape = {500, 500}});
  }
  castor::SearchOptions options;
  options.min_chunk = castor::KiB(64);
  options.max_chunk = castor::MiB(4);
  const castor::Result<castor::SearchResult> found =
      castor::SearchChunkSize(params, options);
  if (!found.ok()) {
    std::fprintf(stderr, "%s\n", found.status().ToString().c_str());
    return 1;
  }
  const castor::GroupSearchResult& group = found->groups.at(0);
  std::printf("%lld chunks\n",
              static_cast<long long>(group.recommended.chunks));
}
