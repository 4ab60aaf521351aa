// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ANSWERS_SEARCH_ANSWER_H_
#define CASTOR_COLLECTIVES_ANSWERS_SEARCH_ANSWER_H_

// What a chunk-size search answers to programs: schema "castor.search/1",
// for `castor search --json` and castor_search_run.
//
// With several groups, candidates name theirs, `best`, `recommended` and
// `certificate` are lists, one entry a group, and `totals` adds up what each
// choice costs; with none, the first two are null. `certificate` proves `best`;
// `certificates` has one entry for each group and mode. Pure functions,
// thread-safe.

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
#include "chunk/rules/gemini_rule.h"
#include "chunk/search/search_result.h"
#include "chunk/text/json_value.h"
#include "placement/machine/step_cost.h"
#include "placement/tier_model.h"

namespace castor {

// What Gemini's rule picks, and what that costs here, by group.
struct RuleReport {
  RuleResult rule;
  std::vector<ChunkSizeCandidate> in_castor;
};

// What Gemini's rule makes of `params`, of which `result` was found. None for a
// model without elements.
Result<std::optional<RuleReport>> ApplyRule(std::span<const ParamSpec> params,
                                            const SearchOptions& options,
                                            const SearchResult& result);

// "BF16", "F32 frozen": what the parameters of a group have in common.
std::string GroupName(const GroupSearchResult& group);

// All groups, and one candidate of each, added up.
struct SearchTotals {
  int64_t elements = 0;  // of the parameters
  Bytes bytes;
  int64_t chunks = 0;  // of the candidates
  Bytes allocated;
  Bytes waste;
  Bytes gathered;

  double waste_fraction() const;  // of what is allocated
};
SearchTotals TotalsOf(
    const SearchResult& result,
    ChunkSizeCandidate GroupSearchResult::*choice = &GroupSearchResult::best);

// What was searched.
struct SearchedModel {
  std::string name = {};
  std::string family = {};  // empty where none tells
  std::string source = {};
  std::string_view order = {};  // in which parameters are packed
  int64_t tensors = 0;
  JsonValue dropped = JsonValue::Array();  // {"name", "reason"}
};

// What was found, which outlives this.
struct SearchFindings {
  const SearchOptions& options;
  const SearchResult& result;
  const std::optional<RuleReport>& rule;
  const std::optional<TierModel>& machine;  // where a link's speed is known
};

// Of a step's transfers. REQUIRES: a machine.
StepCost TransferCost(const SearchFindings& found,
                      const GroupSearchResult& group,
                      const ChunkSizeCandidate& candidate);

// The speed that `machine` knows of a link or a ring.
std::optional<LinkModel> SpeedOf(const TierModel& machine, StepLink link);
bool IsRing(StepLink link);
inline constexpr StepLink kStepLinkOrder[] = {
    StepLink::kHostToDevice, StepLink::kDeviceToHost, StepLink::kAllGather,
    StepLink::kReduceScatter};

// One for each group: by itself where there is one group, else a list.
JsonValue ChosenJson(const SearchFindings& found,
                     std::span<const ChunkSizeCandidate> of_groups);

// The proof of a mode, complete: whoever has the parameters' sizes can check it
// from these numbers alone. `group` is left out where it is empty. Keys after
// those of every mode:
//   uniform  intervals
//   layer    repeat {first, params, repeats} and steps
JsonValue CertificateJson(const ModeResult& mode, const std::string& group);

// The model and what was found of it; and the whole document.
JsonValue SearchedJson(const SearchedModel& model, const SearchFindings& found);
JsonValue SearchJson(const SearchedModel& model, const SearchFindings& found);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ANSWERS_SEARCH_ANSWER_H_
