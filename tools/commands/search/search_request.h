// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_REQUEST_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_REQUEST_H_

// What the flags of `castor search` ask for, once they are found to make sense
// together. Nothing is read here but the command line. Pure function,
// thread-safe.

#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_size_search.h"
#include "placement/tier_model.h"
#include "tools/commands/search/search_flags.h"
#include "tools/commands/search/search_report.h"
#include "tools/models/model_list.h"
#include "tools/rules/rule_result.h"

namespace castor {

struct SearchRequest {
  enum class Form { kPage, kPlain, kJson };

  bool zoo = false;  // public models instead of `model`
  std::string model;
  ReadModelOptions read;
  SearchOptions search;
  std::vector<CompatibilityRule> rules;  // to compare with
  bool rules_asked_for = false;          // else Gemini's
  std::string machine_file;  // a tier model; empty where none is given
  TierModel declared;        // speeds given by flags
  // Which choice to write to `output` and to explain.
  ChoicePick pick = ChoicePick::kRecommended;
  std::optional<Bytes> chunk;  // with ChoicePick::kChunk
  bool explain = false;
  std::string output;
  Form form = Form::kPage;
};

// InvalidArgument with a sentence for what makes no sense for any model.
Result<SearchRequest> CheckSearchFlags(const SearchFlags& flags);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_REQUEST_H_
