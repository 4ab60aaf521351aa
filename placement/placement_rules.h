// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_PLACEMENT_RULES_H_
#define CASTOR_PLACEMENT_PLACEMENT_RULES_H_

// Rules that say on which tier some parameters' states are to live, and what
// they mean for chunks. Of all rules that match a parameter, the first one
// holds. A chunk lives as a whole, so a rule that holds for one of its
// parameters binds the chunk, and parameters without a rule go along. Two
// parameters of one chunk that rules bind to different tiers are an error that
// names both. No tier is the stricter one: a rule to the device asks for speed,
// a rule away from it for room. Rules are looked at once, when a
// plan is made, and what they decided is kept to be explained. Pure functions,
// thread-safe, as far as the callbacks are.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "placement/run_event.h"

namespace castor {

// What all of a rule's conditions admit lives on `tier`.
struct PlacementRule {
  std::string glob = "*";  // of names, as chunk/text/glob.h reads it
  std::optional<DType> dtype = {};
  Bytes least = {};  // of the whole parameter
  std::optional<Bytes> most = {};
  std::optional<std::string> state = {};  // its name; empty: every state
  Tier tier = Tier::kDevice;
  // Where set, asked last, once per parameter and state: the tier, in place of
  // the one above, or nothing where the rule does not hold. Must answer alike
  // on every rank.
  std::function<std::optional<Tier>(const ParamSpec&, StateKind)> decide = {};
};

// For messages: `"*.embed*" BF16 of at least 1 MiB: param on nvme`.
std::string RuleText(const PlacementRule& rule);

// Why a chunk's state has to be on a tier.
struct StateBinding {
  int32_t rule = -1;  // index into the rules; -1: none holds, it is free
  ParamId param;      // for which it holds: the first of the chunk
  Tier tier = Tier::kDevice;

  friend bool operator==(const StateBinding&, const StateBinding&) = default;
};

using ChunkBindings = std::array<StateBinding, kStateKinds>;  // by StateKind

// By ChunkId. InvalidArgument where two parameters of a chunk are bound to
// different tiers, and where a rule matches no parameter at all. So is a state
// that is not one of `names`; the message has the nearest name. REQUIRES:
// `layout` was packed from `params`.
Result<std::vector<ChunkBindings>> BindChunks(
    std::span<const PlacementRule> rules, std::span<const ParamSpec> params,
    const ChunkLayout& layout, const StateNames& names);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_PLACEMENT_RULES_H_
