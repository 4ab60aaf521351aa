// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_RANK_DEVICES_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_RANK_DEVICES_H_

// The simulated devices of a run that was given a machine: one for every rank,
// each with links to the host of its own, on which a copy takes at least the
// time that the machine's would take. Immutable, but for what the devices do.

#include <cstddef>
#include <memory>
#include <vector>

#include "chunk/base/units.h"
#include "offload/device.h"
#include "offload/executor.h"
#include "offload/simulated_device.h"
#include "offload/timer.h"
#include "placement/tier_model.h"
#include "tools/examples/gpt/training.h"

namespace castor::gpt {

class RankDevices {
 public:
  // `capacity`: of each. `executor` must outlive them.
  RankDevices(const TierModel& machine, int ranks, Bytes capacity,
              Executor* executor);

  Device* device(size_t rank) { return devices_[rank].get(); }
  // What the links of each rank carried so far.
  std::vector<RankLinks> links() const;

 private:
  SteadyTimer timer_;
  std::vector<std::unique_ptr<SimulatedDevice>> devices_;
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_RANK_DEVICES_H_
