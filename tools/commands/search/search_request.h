// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_REQUEST_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_REQUEST_H_

// The flags of `castor search` as they are written, and what they ask for once
// they are found to make sense together. Nothing is read here but the command
// line. Owner thread only.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_size_search.h"
#include "placement/tier_model.h"
#include "tools/cli/document.h"
#include "tools/commands/search/search_report.h"
#include "tools/models/model_list.h"
#include "tools/rules/rule_result.h"

namespace CLI {
class App;
}  // namespace CLI

namespace castor {

// What is empty was not given.
struct SearchFlags {
  std::string model;
  std::optional<Bytes> min;
  std::optional<Bytes> max;
  int64_t world = 1;
  int64_t align = 64;
  std::string dtype;
  std::string mode;
  int64_t prefetch_depth = 1;
  std::optional<Bytes> device_budget;
  std::string order;
  std::string trace;
  std::string expert_layout;
  std::vector<std::string> freeze;
  std::vector<std::string> only;
  std::optional<Bytes> chunk;
  std::string pick;
  bool explain = false;
  std::string output;
  std::string rule;
  std::string machine;
  std::string h2d;
  std::string d2h;
  std::string all_gather;
  std::string reduce_scatter;
  bool zoo = false;
  bool json = false;
  bool plain = false;
};

// `flags` outlives `app`.
void DeclareSearchFlags(CLI::App& app, SearchFlags* flags);

struct SearchRequest {
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
