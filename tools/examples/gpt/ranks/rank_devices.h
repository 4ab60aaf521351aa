// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_RANKS_RANK_DEVICES_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_RANKS_RANK_DEVICES_H_

// Part of training with Castor (trainer.h). The simulated devices and drives of
// a run that was given a machine: for every rank a device, with links to the
// host of its own, and a drive, on which what is moved takes at least the time
// that it would take on the machine's. Immutable, but for what they do.

#include <cstddef>
#include <memory>
#include <vector>

#include "chunk/base/units.h"
#include "offload/device.h"
#include "offload/lanes/executor.h"
#include "offload/lanes/timer.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/twin/simulated_device.h"
#include "offload/twin/simulated_link.h"
#include "placement/tier_model.h"
#include "tools/examples/gpt/trainer.h"

namespace castor::gpt {

class RankDevices {
 public:
  // `capacity`: of each. `executor` must outlive them.
  RankDevices(const TierModel& machine, int ranks, Bytes capacity,
              Executor* executor);

  Device* device(size_t rank) { return devices_[rank].get(); }
  // The queue of whichever drives the rank has: together they are the machine's
  // one. Null where nothing is known of that.
  IoQueueFactory nvme_queue(size_t rank);
  // What the links of a rank carried so far.
  RankLinks links(size_t rank) const;

 private:
  const SimulatedLinkModels drive_;
  SteadyTimer timer_;
  ThreadPool file_calls_;
  std::vector<std::unique_ptr<SimulatedLinks>> drives_;
  std::vector<std::unique_ptr<SimulatedDevice>> devices_;
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_RANKS_RANK_DEVICES_H_
