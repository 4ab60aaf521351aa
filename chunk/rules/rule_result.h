// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_RULES_RULE_RESULT_H_
#define CASTOR_CHUNK_RULES_RULE_RESULT_H_

// What the chunk-size rules of other systems have in common: what they are
// given, and what comes of it, both as the system itself would print it and as
// its own packer then lays the chunks. Values.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/units.h"

namespace castor {

enum class CompatibilityRule { kGemini, kPatrickStar, kElixir };

// What the rules know of a parameter. A list is in initialization order.
struct RuleParam {
  Elements size;
  bool trainable = true;
  // Used under several names (a tied embedding); listed once.
  bool shared = false;
  // Direct parameters of one module are neighbours of equal number.
  int64_t module = 0;
};

// The rules add and multiply sizes; lists with a larger sum are refused.
inline constexpr Elements kMaxRuleElements(int64_t{1} << 55);

// One chunk as the system's own packer fills it.
struct RuleChunk {
  Elements size;
  Elements used;
  int64_t params = 0;
  // Made for one parameter, to its size: too large for the others, or shared.
  bool own = false;
};

// What a system's own packer makes of a list.
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
  CompatibilityRule rule = CompatibilityRule::kGemini;
  // What the rule picks; empty where it finds no size: `failure` says why.
  std::optional<Elements> chunk_size;
  std::string failure;
  // The chunk is not sharded but whole on every rank.
  bool replicated = false;
  // What the system prints of its choice. The fraction is as the system divides
  // it, which is not always over what is allocated.
  Elements claimed_waste;
  double claimed_fraction = 0;
  // Parameters that the claim leaves out though they are packed, and why.
  int64_t ignored_params = 0;
  Elements ignored;
  std::string ignored_why;
  // Parameters that are in no chunk though the claim may count them.
  int64_t unpacked_params = 0;
  Elements unpacked;
  // The truth, by the system's own packing rule. Empty where chunk_size is.
  RulePacking packing;
};

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

#endif  // CASTOR_CHUNK_RULES_RULE_RESULT_H_
