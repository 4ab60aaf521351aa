// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_RESULTS_H_
#define CASTOR_COLLECTIVES_ENGINE_RESULTS_H_

// What a ZeroEngine tells its trainer: of a step, of what it holds and moved,
// of having left the device. Plain structs.

#include <array>
#include <cstdint>
#include <string>

#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/lanes/event.h"
#include "placement/run_event.h"

namespace castor {

struct StepResult {
  int64_t step = 0;
  // Global norm of the averaged gradient, without the loss scale and before
  // clipping; 0 where nothing asks for it: see
  // ZeroOptions::count_norm.
  double grad_norm = 0;
  double clip_factor = 1;
  // What the loss of this step was multiplied by; LossScale() has the next.
  double loss_scale = 1;
  // False when a gradient of any rank was infinite or not a number: nothing was
  // updated. Found by the norm, so true where that is not computed, and such a
  // gradient spreads.
  bool applied = true;
  // The first parameter of such a gradient, over all ranks; invalid where the
  // step was applied.
  ParamId not_finite;
  // Leases that outlive the step show all new values behind this event.
  Event written;
};

struct TierUse {
  Bytes budget;
  Bytes in_use;
  Bytes peak;
};

struct EngineStats {
  TierUse tiers[3];  // by TierIndex
  // Bytes moved between tiers since Seal, [from][to].
  Bytes moved[3][3];
  Bytes most_nvme_written;  // in any one step: what wears the drives
  Bytes wire_sent;          // to other ranks, by all that the communicator did
  int64_t gathers = 0;      // slots filled; loads, where the home is whole
  // Homes that were read for gathers, or for copies of shards that several are
  // sent from.
  int64_t fetches = 0;
  int64_t prefetched_fetches = 0;
  int64_t prefetched_gathers = 0;
  int64_t cancelled_gathers = 0;  // of these, taken back before they began
  int64_t reduce_scatters = 0;    // one rank makes none
  int64_t early_updates = 0;      // chunks updated before Step
  int64_t guesses = 0;            // updates begun before the norm was known
  int64_t right_guesses = 0;      // of these, whose outcome was taken
  int64_t releases = 0;
  int64_t divergences = 0;
  int64_t stall_ns = 0;  // compute lanes waited for chunks, or their places
  int64_t stalls = 0;
  std::array<StallSum, kRunCauses> stalls_by_cause{};  // of these, by RunCause
  int64_t tier_allocations = 0;  // slabs and files made since the start
  // Copies between device buffers before or after a collective. One rank, which
  // has none, copies a gradient to its home on the device.
  Bytes engine_copies;
  int64_t gathered_slots = 0;
  int64_t grown_slots = 0;  // of these, made because a step held more at once
  // Made because leases outlived their use (ZeroOptions::own_lease_ends).
  int64_t extra_slots = 0;
  // Of the device budget, beside the tier's: buffers of exchanges among ranks.
  Bytes exchange;
  int64_t chunks = 0;
  int64_t chunk_sizes = 0;  // distinct ones in bytes, oversize chunks aside
  Bytes chunk_bytes;        // the largest of these
  Bytes home_bytes[3];      // of states at home, by tier
  Bytes state_bytes[kStateKinds][3];  // of these, of each state
};

// What Park leaves behind.
struct ParkResult {
  Bytes moved;      // of states, to the tier, by this call
  Bytes remaining;  // of states, still on the device: the tier has no room
  // Device memory that is held now: 0 when nothing remains, else all of what
  // was allocated at Seal, which only goes as a whole.
  Bytes held;
  // What remains and what would make room for it; empty when nothing does.
  std::string shortfall;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ENGINE_RESULTS_H_
