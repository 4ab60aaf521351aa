// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_STEP_TRAFFIC_H_
#define CASTOR_PLACEMENT_STEP_TRAFFIC_H_

// What one rank moves and works through in a step: of one chunk, or of all.
// Values. Part of the traces (trace.h).

#include <array>
#include <cstdint>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"

namespace castor {

struct LinkTraffic {
  Bytes bytes;
  int64_t transfers = 0;

  LinkTraffic& operator+=(const LinkTraffic& other);
  friend bool operator==(const LinkTraffic&, const LinkTraffic&) = default;
};

struct StepTraffic {
  // [from][to] by TierIndex, as EngineStats::moved. NVMe moves whole blocks of
  // 4 KiB.
  std::array<std::array<LinkTraffic, 3>, 3> moved;
  // What this rank sends to others of gathered chunks and refreshed replicas.
  LinkTraffic all_gather;
  // The same of gradients, with the all-gather behind each reduce-scatter
  // where a rank keeps more than the slice that it reduces.
  LinkTraffic reduce_scatter;
  // The steps of these collectives round their rings: one less than the ranks
  // of each collective, added up.
  int64_t all_gather_steps = 0;
  int64_t reduce_scatter_steps = 0;
  Bytes norm;  // of its sum of squares, from the device; 0: none is computed
  // What ranks agree on at Step, and what this rank sends for the agreement,
  // as ranks of one process exchange it.
  Bytes agreed;
  Bytes agreement;
  int64_t gathers = 0;  // slots filled; loads, where the home is whole
  int64_t fetches = 0;  // homes read for these, or for copies of shards
  // Elements that the optimizer updates, by where it runs.
  Elements updated_on_device;
  Elements updated_on_host;
  // Bytes of host memory that passes there read and write: of updates, and of
  // gradients that are added to sums or squared.
  Bytes update_bytes;
  Bytes sum_bytes;

  const LinkTraffic& on(Tier from, Tier to) const {
    return moved[TierIndex(from)][TierIndex(to)];
  }
  LinkTraffic& on(Tier from, Tier to) {
    return moved[TierIndex(from)][TierIndex(to)];
  }
  // To other ranks, all together.
  Bytes wire_sent() const {
    return all_gather.bytes + reduce_scatter.bytes + agreement;
  }
  StepTraffic& operator+=(const StepTraffic& other);

  friend bool operator==(const StepTraffic&, const StepTraffic&) = default;
};

}  // namespace castor

#endif  // CASTOR_PLACEMENT_STEP_TRAFFIC_H_
