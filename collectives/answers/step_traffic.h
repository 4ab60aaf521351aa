// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ANSWERS_STEP_TRAFFIC_H_
#define CASTOR_COLLECTIVES_ANSWERS_STEP_TRAFFIC_H_

// Part of the seal's forecast (seal_forecast.h).
//
// What one rank moves in a step, byte for byte, from what Seal decided and the
// gathers that the step makes: ZeroEngine's own ways of parameters, gradients
// and states between tiers and ranks, without an engine. Values and pure
// functions, thread-safe.

#include <array>
#include <cstdint>
#include <span>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "collectives/memory/memory_plan.h"
#include "collectives/memory/sharding.h"
#include "placement/trace/step_trace.h"

namespace castor {

struct LinkTraffic {
  Bytes bytes;
  int64_t transfers = 0;

  friend bool operator==(const LinkTraffic&, const LinkTraffic&) = default;
};

struct StepTraffic {
  // From tier, to tier, by TierIndex; what NVMe moves is whole blocks of 4 KiB.
  std::array<std::array<LinkTraffic, 3>, 3> moved;
  // Of chunks that are gathered for use, and of replicas that are refreshed:
  // what this rank sends to others.
  LinkTraffic all_gather;
  // The same for gradients, with the all-gather behind each reduce-scatter
  // where a rank keeps more than the slice that it reduces.
  LinkTraffic reduce_scatter;
  // What they take round their rings: the other ranks of each, added up.
  int64_t all_gather_steps = 0;
  int64_t reduce_scatter_steps = 0;
  Bytes norm;  // of its sum of squares, from the device; 0: none is computed
  // What ranks agree on at Step, and what a rank sends for that, as ranks of
  // one process exchange it.
  Bytes agreed;
  Bytes agreement;
  int64_t gathers = 0;  // slots filled; loads, where the home is whole
  // Homes read for these, or for copies of shards: those of others are spared.
  int64_t fetches = 0;
  // Elements that the optimizer updates, by where it runs.
  Elements updated_on_device;
  Elements updated_on_host;
  // Of host memory, what passes read and write: updates there, and gradients
  // that are added to sums there, with their squares.
  Bytes update_bytes;
  Bytes sum_bytes;

  const LinkTraffic& on(Tier from, Tier to) const {
    return moved[TierIndex(from)][TierIndex(to)];
  }
  // To other ranks, all together.
  Bytes wire_sent() const {
    return all_gather.bytes + reduce_scatter.bytes + agreement;
  }
};

struct StepActivity {
  std::span<const int64_t> gathers;  // of the step, by ChunkId
  // By ChunkId: how often its home is read for gathers, or for a copy of the
  // shard that serves several.
  std::span<const int64_t> loads;
  const StepTrace* trace = nullptr;  // of it
  bool norm = false;                 // the global norm is computed
};

// REQUIRES: `memory` was made of the layout and the sharding; every chunk that
// has a gradient in the step has one in its last micro-batch.
StepTraffic TrafficOf(const ChunkLayout& layout, const Sharding& sharding,
                      const MemoryPlan& memory, const StepActivity& step);

// The chunks whose replicas are refreshed through a gathered slot once the
// step is over, in the order in which they are.
std::vector<ChunkId> RefreshedThroughSlots(const ChunkLayout& layout,
                                           const Sharding& sharding,
                                           const MemoryPlan& memory,
                                           const Trace& trace);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ANSWERS_STEP_TRAFFIC_H_
