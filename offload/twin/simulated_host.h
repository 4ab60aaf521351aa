// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_TWIN_SIMULATED_HOST_H_
#define CASTOR_OFFLOAD_TWIN_SIMULATED_HOST_H_

// The twin of the host's cores and memory, for passes over it: the work is
// really done, and the lane goes on when the modelled time is over. Passes have
// the cores to themselves, in the order in which they begin. On a virtual clock
// (VirtualExecutor) a pass takes the modelled time exactly, on the machine's at
// least what the work takes.

#include <memory>
#include <optional>

#include "chunk/base/units.h"
#include "offload/host_passes.h"
#include "offload/lane.h"
#include "offload/lanes/timer.h"
#include "placement/tier_model.h"
#include "placement/timeline/wires.h"

namespace castor {

// A rate that is empty takes no time.
struct SimulatedHostModel {
  std::optional<RateModel> optimizer = {};  // of updates
  std::optional<RateModel> memory = {};     // of all else
  // What passes take their time of, in place of these rates, with the device
  // and the drives; outlives the host. Null: nothing that others use.
  internal::Wires* wires = nullptr;
  bool dry = false;  // passes take their time, and nothing is done
};

class SimulatedHost final : public HostPasses {
 public:
  // `timer` must outlive it, and it all that was queued.
  SimulatedHost(const SimulatedHostModel& model, Timer* timer);
  ~SimulatedHost() override;
  SimulatedHost(const SimulatedHost&) = delete;
  SimulatedHost& operator=(const SimulatedHost&) = delete;

  void Queue(Lane& lane, HostPass pass, Bytes traffic,
             Lane::Work work) override;
  // What passes took so far.
  int64_t busy_ns() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_TWIN_SIMULATED_HOST_H_
