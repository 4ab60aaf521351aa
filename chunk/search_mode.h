// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_SEARCH_MODE_H_
#define CASTOR_CHUNK_SEARCH_MODE_H_

// The two ways in which a chunk size is chosen.

#include <cstdint>
#include <string_view>

namespace castor {

enum class SearchMode : uint8_t {
  kUniform,  // one size in [min, max]
  kLayer,    // the sizes that hold one repeat of a layer in 1 to 8 chunks
};

constexpr std::string_view SearchModeName(SearchMode mode) {
  switch (mode) {
    case SearchMode::kUniform:
      return "uniform";
    case SearchMode::kLayer:
      return "layer";
  }
  return "unknown";
}

}  // namespace castor

#endif  // CASTOR_CHUNK_SEARCH_MODE_H_
