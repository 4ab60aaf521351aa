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
// chunk, though the search counts them. Pure functions, thread-safe.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "chunk/search/search_result.h"

namespace castor {

// What the rule knows of a parameter. A list is in initialization order, and
// all of it in one type, whatever types it has elsewhere.
struct RuleParam {
  Elements size;
  bool trainable = true;
};

// The rule adds and multiplies sizes; lists with a larger sum are refused.
inline constexpr Elements kMaxRuleElements(int64_t{1} << 55);

// One chunk as Gemini's own packer fills it.
struct RuleChunk {
  Elements size;
  Elements used;
  int64_t params = 0;
  bool own = false;  // made for one parameter that is too large, to its size
};

// What Gemini's own packer makes of a list.
struct RulePacking {
  std::vector<RuleChunk> chunks;  // as opened; zero-size parameters open none
  int64_t own_chunks = 0;
  Elements allocated;
  Elements payload;  // what is in the chunks: not always all of the list

  Elements waste() const { return allocated - payload; }
  // Of what is allocated; 0 where nothing is.
  double waste_fraction() const;
  void Append(const RuleChunk& chunk);
};

struct RuleResult {
  Elements chunk_size;
  // The chunk is not sharded but whole on every rank.
  bool replicated = false;
  // What init_chunk_manager prints of the choice, over used and wasted
  // elements.
  Elements claimed_waste;
  double claimed_fraction = 0;
  // Parameters that the claim leaves out though they are packed, and why.
  int64_t ignored_params = 0;
  Elements ignored;
  std::string ignored_why;
  // Parameters that are in no chunk though the claim may count them.
  int64_t unpacked_params = 0;
  Elements unpacked;
  // The truth, by Gemini's own packing.
  RulePacking packing;
};

struct GeminiRuleOptions {
  int world = 1;                          // ranks that share a chunk
  Elements min_chunk{int64_t{32} << 20};  // min_chunk_size_m
  Elements range{int64_t{32} << 20};      // search_range_m
  Elements step{1024};                    // hidden_dim, where it is given
  bool filter = true;                     // filter_exlarge_params
};

// InvalidArgument where the list holds no element or more than
// kMaxRuleElements; Malformed where a shape is.
Result<std::vector<RuleParam>> RuleParams(std::span<const ParamSpec> params);

// What the rule makes of a list. InvalidArgument where an option is out of
// range. REQUIRES: sizes >= 0 of a sum from 1 to kMaxRuleElements.
Result<RuleResult> ApplyGeminiRule(std::span<const RuleParam> params,
                                   const GeminiRuleOptions& options);

// Gemini's own packing at a given size. REQUIRES: as above; chunk_size > 0.
RulePacking PackAsGemini(std::span<const RuleParam> params, Elements chunk_size,
                         int world);

// What `chunk_size` costs in Castor, rounded up to Q and packed by Castor's own
// packer: one row for each group, as GroupParams orders them, to stand beside
// the candidates of a search with as many gathered slots. InvalidArgument where
// options are not valid or a sum could overflow; Malformed where a shape is.
// REQUIRES: chunk_size from 1 to kMaxRuleElements, gathered_slots > 0.
Result<std::vector<ChunkSizeCandidate>> GeminiInCastor(
    Elements chunk_size, std::span<const ParamSpec> params,
    const PackOptions& options, int64_t gathered_slots = 3);

inline double RulePacking::waste_fraction() const {
  if (allocated == Elements(0)) return 0;
  return static_cast<double>(waste().count()) /
         static_cast<double>(allocated.count());
}

inline void RulePacking::Append(const RuleChunk& chunk) {
  chunks.push_back(chunk);
  if (chunk.own) ++own_chunks;
  allocated += chunk.size;
  payload += chunk.used;
}

}  // namespace castor

#endif  // CASTOR_CHUNK_RULES_GEMINI_RULE_H_
