// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ANSWERS_SEARCH_WORDS_H_
#define CASTOR_COLLECTIVES_ANSWERS_SEARCH_WORDS_H_

// What a chunk-size search is asked for, as a person writes it in flags of
// `castor search` and a program in a JSON object whose keys are those flags:
// --device-budget and "device_budget". Pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_size_search.h"
#include "chunk/param_spec.h"
#include "collectives/options/option_table.h"
#include "placement/tier_model.h"

namespace castor {

struct SearchWords {
  std::optional<Bytes> min;
  std::optional<Bytes> max;
  SearchOptions search;
  int64_t prefetch = 1;
  std::string mode;
  std::string rule;
  // Speeds: "24GB/s,10us".
  std::string h2d;
  std::string d2h;
  std::string all_gather;
  std::string reduce_scatter;
};

struct SearchQuestion {
  // Of the chunk size. Empty: the model decides.
  std::optional<Bytes> min;
  std::optional<Bytes> max;
  SearchOptions search;  // all but the bounds
  TierModel declared;    // speeds that were given
};

// The question for one model. Bounds that were not said are the first that an
// engine without a device budget searches: see ChunkBoundsFor. A budget that
// moved them would not be the one that a refusal asks for.
SearchOptions SearchOf(const SearchQuestion& question,
                       std::span<const ParamSpec> params);

// Rows with flags and keys. `words` outlives the table.
OptionTable SearchRows(SearchWords* words);

// How messages name an option.
enum class OptionSpelling : uint8_t { kFlag, kKey };

// InvalidArgument with a sentence for what makes no sense for any model.
Result<SearchQuestion> CheckSearchWords(const SearchWords& words,
                                        OptionSpelling spelling);

// Of a JSON object. InvalidArgument names the place, and the nearest key.
Result<SearchQuestion> ReadSearchQuestion(std::string_view json);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ANSWERS_SEARCH_WORDS_H_
