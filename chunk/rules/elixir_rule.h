// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_RULES_ELIXIR_RULE_H_
#define CASTOR_CHUNK_RULES_ELIXIR_RULE_H_

// The minimum-waste rule of Elixir (find_search_range and
// find_minimum_waste_size of elixir/search/utils.py, the same in ColossalAI's
// feature/elixir branch): from 32 MiB, doubled until it holds the largest
// parameter that is used once, to three times that, in steps that keep the work
// below 16 Mi parameters looked at.
//
// The truth is that of SearchMiniWaste: next-fit without alignment of the
// parameters used once; a parameter used under several names gets a chunk of
// its own, which stays gathered; both are rounded up to the ranks. Frozen
// parameters are in no chunk. Pure function, thread-safe.

#include <cstdint>
#include <span>

#include "chunk/base/units.h"
#include "chunk/rules/rule_result.h"

namespace castor {

struct ElixirRuleOptions {
  int world = 1;
  int64_t element_bytes = 2;  // of the one type all parameters have
};

// What the rule makes of a list. The claim is over the elements it packs, those
// wasted not counted, as it prints it. REQUIRES: world > 0, element_bytes from
// 1 to 8; sizes >= 0 of a sum from 1 to kMaxRuleElements.
RuleResult ApplyElixirRule(std::span<const RuleParam> params,
                           const ElixirRuleOptions& options);

}  // namespace castor

#endif  // CASTOR_CHUNK_RULES_ELIXIR_RULE_H_
