// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_REPORT_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_REPORT_H_

// A search and its answer, as search_run.h finds it and search_document.h says
// it. Values and pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/chunk_size_search.h"
#include "chunk/search_result.h"
#include "placement/tier_model.h"
#include "tools/models/model_list.h"
#include "tools/rules/rule_result.h"

namespace castor {

// What another system's rule picks, and what that costs here, by group; no
// costs where it picks nothing.
struct RuleReport {
  RuleResult rule;
  std::vector<ChunkSizeCandidate> in_castor;
};

enum class ChoicePick { kRecommended, kBest, kChunk };

// "recommended", "best", "chunk"; and for people, who gave --chunk.
std::string_view ChoicePickName(ChoicePick pick);
std::string_view ChoicePickText(ChoicePick pick);

// "fused", "per-expert": as --expert-layout names them.
std::string_view ExpertLayoutName(ExpertLayout layout);

// One chunk size for each group of the model, and the layout that makes.
struct SearchChoice {
  ChoicePick pick = ChoicePick::kRecommended;
  std::vector<ChunkSizeCandidate> groups;  // one for each group of the result
  ChunkLayout layout;
};

struct SearchReport {
  std::string model_argument;  // MODEL as it was given
  ModelList model;
  std::optional<ExpertLayout> experts;  // how they are held, if there are any
  SearchOptions options;
  SearchResult result;
  std::vector<RuleReport> rules;
  bool rules_asked_for = false;      // else Gemini's, as a row to compare with
  std::optional<TierModel> machine;  // where the speed of some link is known
  // What -o wrote, --explain explains or --chunk asked for.
  std::optional<SearchChoice> choice;
  bool explain = false;
  std::string output;  // the file that the layout was written to, if any
  // The same model with its experts held in the other way.
  std::vector<SearchReport> other_layouts;
};

// "BF16", "F32 frozen": what the parameters of a group have in common.
std::string GroupName(const GroupSearchResult& group);

// The same chunk size, chosen in the same way.
bool SameChoice(const ChunkSizeCandidate& a, const ChunkSizeCandidate& b);

struct ModelTotals {
  int64_t elements = 0;
  Bytes bytes;
};
ModelTotals TotalsOf(const ModelList& model);

// One candidate of every group, added up.
struct ChoiceTotals {
  int64_t chunks = 0;
  Bytes allocated;
  Bytes waste;
  Bytes gathered;

  double waste_fraction() const;  // of what is allocated
};
ChoiceTotals TotalsOf(const SearchResult& result,
                      ChunkSizeCandidate GroupSearchResult::*choice);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_REPORT_H_
