// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_HOMES_STATIC_POLICY_H_
#define CASTOR_PLACEMENT_HOMES_STATIC_POLICY_H_

// The `static` policy: homes as a user asks for them, in bytes (or fractions)
// per state and tier. What is asked is what comes:
//
// - Byte-accurate. A tier takes chunks until the next one would be more than
//   its limit, so what it holds is less than that chunk below the limit.
// - Monotone. Chunks go in one order, whatever the limits: the device takes a
//   beginning of it, the host the run behind that, NVMe the rest. A higher
//   limit moves no chunk to a slower tier.
// - Interleaved. The order goes through the model by steps of the golden
//   section, so every beginning of it, and every run in it, is spread over the
//   model evenly (three gaps: Slater 1967), and all links stay busy. In
//   front of larger chunks go smaller ones, so that one oversize chunk keeps no
//   tier empty. All states go in the same order: a chunk whose moments are on
//   the device has its masters there too, as far as limits allow.
// - Alike on all ranks: nothing is hashed, counted or measured here.
//
// That is unlike Gemini, whose fractions walk a set in an order of addresses
// and free 31 of 32 chunks or none, and unlike DeepSpeed, where a fraction of
// sub-groups stands for one of bytes. Nothing is rounded off quietly: what does
// not fit is refused with the bytes. Rules (placement_rules.h) go first, and
// count. Pure functions, thread-safe.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "placement/homes/home_policy.h"
#include "placement/placement_rules.h"
#include "placement/run_event.h"

namespace castor {

// At most so many bytes of slots of a state on a tier, or at most so large a
// part, 0 to 1, of those that the whole state would take there.
using StateLimit = std::variant<Bytes, double>;

// Of one state. Without a limit the device takes nothing but what rules put
// there, the host all that the device leaves, NVMe all that both leave.
struct StateLimits {
  std::optional<StateLimit> device = {};
  std::optional<StateLimit> host = {};
  std::optional<StateLimit> nvme = {};

  std::optional<StateLimit>& on(Tier tier) {
    return tier == Tier::kDevice ? device : tier == Tier::kHost ? host : nvme;
  }
  const std::optional<StateLimit>& on(Tier tier) const {
    return tier == Tier::kDevice ? device : tier == Tier::kHost ? host : nvme;
  }
};

using StaticLimits = std::array<StateLimits, kStateKinds>;  // by StateKind

struct StaticPlacement {
  std::vector<ChunkHomes> homes;  // by ChunkId
  // Bytes of slots by StateKind, then by TierIndex.
  std::array<std::array<Bytes, 3>, kStateKinds> bytes;
  StateNames names = {};
};

// `bindings` by ChunkId, or empty: there are no rules. A state that a chunk
// does not have is said to be where its parameters are. InvalidArgument for a
// limit that is negative or a fraction above 1; Infeasible, with the bytes and
// what to change, where rules put more on a tier than its limit, where limits
// leave something over, and where a tier has no room for what it is to hold.
Result<StaticPlacement> PlaceStatically(
    const HomeProblem& problem, const StaticLimits& limits,
    std::span<const ChunkBindings> bindings);

// Why a chunk's state is where it is: the rule and the parameter it holds for,
// or the limits. REQUIRES: the placement was made of these bindings, and those
// of these rules and parameters.
std::string ExplainPlacement(const StaticPlacement& placement,
                             std::span<const ChunkBindings> bindings,
                             std::span<const PlacementRule> rules,
                             std::span<const ParamSpec> params, ChunkId chunk,
                             StateKind state);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_HOMES_STATIC_POLICY_H_
