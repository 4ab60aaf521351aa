// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/rank_devices.h"

#include "offload/simulated_link.h"
#include "offload/worker_pool.h"

namespace castor::gpt {

RankDevices::RankDevices(const TierModel& machine, int ranks, Bytes capacity,
                         Executor* executor) {
  SimulatedDeviceOptions options;
  options.capacity = capacity;
  options.links = LinkModelsOf(machine, Duplex::kFull);
  options.executor = executor;
  options.timer = &timer_;
  options.workers = &WorkerPool::Process();
  for (int rank = 0; rank < ranks; ++rank) {
    devices_.push_back(std::make_unique<SimulatedDevice>(options));
  }
}

std::vector<RankLinks> RankDevices::links() const {
  std::vector<RankLinks> links;
  for (const auto& device : devices_) {
    links.push_back({device->link_use(CopyKind::kToDevice),
                     device->link_use(CopyKind::kFromDevice)});
  }
  return links;
}

}  // namespace castor::gpt
