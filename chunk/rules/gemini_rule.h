// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_RULES_GEMINI_RULE_H_
#define CASTOR_CHUNK_RULES_GEMINI_RULE_H_

// The chunk-size rule of ColossalAI's Gemini (search_chunk_configuration of
// colossalai/zero/gemini/chunk/search_utils.py, version 0.5.0). It drops
// parameters of more than mean + 3 standard deviations, tries sizes at equal
// steps from the largest of the others on, and keeps the first of least waste;
// then rounds it up to the ranks without counting again.
//
// The truth is that of ChunkManager.register_tensor: next-fit without
// alignment; a parameter larger than the chunk closes it and gets one of its
// own, rounded up to the ranks; frozen parameters are on every rank and in no
// chunk, though the search counts them. Pure function, thread-safe.

#include <cstdint>
#include <span>

#include "chunk/base/units.h"
#include "chunk/rules/rule_result.h"

namespace castor {

struct GeminiRuleOptions {
  int world = 1;                          // ranks that share a chunk
  Elements min_chunk{int64_t{32} << 20};  // min_chunk_size_m
  Elements range{int64_t{32} << 20};      // search_range_m
  Elements step{1024};                    // hidden_dim, where it is given
  bool filter = true;                     // filter_exlarge_params
};

// What the rule makes of a list. The claim is over used and wasted elements, as
// init_chunk_manager prints it. REQUIRES: world, step > 0, min_chunk and range
// >= 0; sizes >= 0 of a sum from 1 to kMaxRuleElements.
RuleResult ApplyGeminiRule(std::span<const RuleParam> params,
                           const GeminiRuleOptions& options);

// Gemini's own packing at a given size. REQUIRES: as above; chunk_size > 0.
RulePacking PackAsGemini(std::span<const RuleParam> params, Elements chunk_size,
                         int world);

}  // namespace castor

#endif  // CASTOR_CHUNK_RULES_GEMINI_RULE_H_
