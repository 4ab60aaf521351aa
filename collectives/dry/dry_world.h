// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_DRY_DRY_WORLD_H_
#define CASTOR_COLLECTIVES_DRY_DRY_WORLD_H_

// What an engine without bytes stands on: a counted clock, a device and host
// memory of addresses without pages, drives without a file, and a communicator
// of one rank that stands for all. Links, drives, memory and kernels are those
// of a machine that somebody measured, and share as its wires do
// (placement/timeline/wires.h). Owner thread only: the thread that made the
// world makes all calls, and runs what they wait for.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "chunk/base/log.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/zero_options.h"
#include "offload/lane.h"
#include "offload/lanes/solo_executor.h"
#include "offload/twin/simulated_device.h"
#include "offload/twin/simulated_host.h"
#include "placement/tier_model.h"
#include "placement/timeline/meetings.h"
#include "placement/timeline/wires.h"
#include "placement/traffic_book.h"

namespace castor {

struct DryWorldOptions {
  // This rank's share; what it does not know takes no time. Empty: nothing
  // does, and shards move whole.
  std::optional<TierModel> machine;
  std::optional<LinkModel> device_memory = {};  // likewise, for kernels there
  Bytes device_capacity;
  int world = 1;
  int rank = 0;
  Bytes communicator_buffers;
  // Drives move up to so many bytes at once, a multiple of 1 MiB up to 32 MiB.
  Bytes nvme_piece = MiB(1);
};

class DryWorld {
 public:
  // `meetings`: with the other ranks; outlives the world.
  DryWorld(const DryWorldOptions& options, internal::Meetings* meetings);
  DryWorld(const DryWorld&) = delete;
  DryWorld& operator=(const DryWorld&) = delete;

  // Sets the collaborators of an engine that the world outlives. What the
  // options know of a dry engine stays.
  void Furnish(ZeroOptions* options);

  Communicator* communicator() { return communicator_.get(); }
  SimulatedDevice& device() { return device_; }
  SoloExecutor& executor() { return executor_; }
  int64_t now_ns() const { return executor_.NowNs(); }
  // Counts of the engine's calls; times are counted by the world.
  TrafficBook& traffic() { return traffic_; }
  // So far.
  int64_t busy_ns(internal::Traffic traffic) const {
    return wires_.busy_ns(traffic);
  }
  int64_t collectives_ns() const { return collectives_ns_; }

 private:
  const bool instant_;
  const Bytes nvme_piece_;
  SoloExecutor executor_;
  internal::Wires wires_;
  SimulatedDevice device_;
  SimulatedHost host_;
  TrafficBook traffic_;
  int64_t collectives_ns_ = 0;
  const std::unique_ptr<Communicator> communicator_;
  Log silent_;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_DRY_DRY_WORLD_H_
