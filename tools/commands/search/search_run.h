// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_RUN_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_RUN_H_

// `castor search` from its flags to its report: what they ask for once they are
// found to make sense together, and what is found. search_document.h says it.
// Values; flags and RunSearch are for the owner's thread only, the other
// functions are pure and thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/chunk_size_search.h"
#include "chunk/search/search_result.h"
#include "collectives/answers/search_answer.h"
#include "collectives/answers/search_words.h"
#include "placement/tier_model.h"
#include "tools/cli/console.h"
#include "tools/cli/text/document.h"
#include "tools/models/model_list.h"

namespace CLI {
class App;
}  // namespace CLI

namespace castor {

// --- What is asked for: search_flags.cc

enum class ChoicePick { kRecommended, kBest, kChunk };

// "recommended", "best", "chunk"; and for people, who gave --chunk.
std::string_view ChoicePickName(ChoicePick pick);
std::string_view ChoicePickText(ChoicePick pick);

struct SearchRequest {
  bool zoo = false;  // public models instead of `model`
  std::string model;
  ReadModelOptions read;
  SearchQuestion search;
  bool rule_asked_for = false;  // else it is a row to compare with
  std::string machine_file;     // a tier model; empty where none is given
  // Which choice to write to `output` and to explain.
  ChoicePick pick = ChoicePick::kRecommended;
  std::optional<Bytes> chunk;  // with ChoicePick::kChunk
  bool explain = false;
  std::string output;
  std::string flags;  // that search so again, each after a space
  Form form = Form::kPage;
};

struct SearchFlags {
  SearchRequest request;           // with what is as the flag has it
  std::vector<std::string> given;  // names of flags
  SearchWords search;
  std::string dtype;  // as it is written
  bool json = false;
  bool plain = false;
};

// `flags` outlives `app`.
void DeclareSearchFlags(CLI::App& app, SearchFlags* flags);

// InvalidArgument with a sentence for what makes no sense for any model.
Result<SearchRequest> CheckSearchFlags(const SearchFlags& flags);

// --- What is found: search_run.cc

// One chunk size for each group of the model, and the layout that makes.
struct SearchChoice {
  std::vector<ChunkSizeCandidate> groups;  // one for each group of the result
  ChunkLayout layout;
};

struct SearchReport {
  SearchRequest request;
  ModelList model;
  std::optional<ExpertLayout> experts;  // how they are held, if there are any
  SearchOptions search;                 // what the request asks of this model
  SearchResult result;
  std::optional<RuleReport> rule;
  std::optional<TierModel> machine;  // where the speed of some link is known
  // What -o wrote, --explain explains or --chunk asked for.
  std::optional<SearchChoice> choice;
  // The same model with its experts held in the other way.
  std::vector<SearchReport> other_layouts;

  SearchFindings findings() const { return {search, result, rule, machine}; }
};

// Reads the model and the machine, searches, and writes the layout file.
// Progress and notes go to `console.err`, nothing to `console.out`. Where a
// layout file is asked for, it is there when this succeeds, and nothing of it
// when it does not.
Result<SearchReport> RunSearch(const SearchRequest& request,
                               const Console& console);

// What the request picks, and its layout. With kChunk every group has one size,
// `chunk` rounded up to a multiple of Q of its type; where it differs, a
// sentence is added to `notes`. InvalidArgument where that cannot be packed.
// REQUIRES: `chunk` is given with kChunk and only then; `report.result` was
// found in `report.model`.
Result<SearchChoice> MakeChoice(const SearchReport& report,
                                std::vector<std::string>* notes);

// The same chunk size, chosen in the same way.
bool SameChoice(const ChunkSizeCandidate& a, const ChunkSizeCandidate& b);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_RUN_H_
