// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/ranks/rank_devices.h"

#include "offload/nvme/queue/simulated_io_queue.h"
#include "offload/worker_pool.h"

namespace castor::gpt {
namespace {

// They wait for the system most of the time.
constexpr int kFileThreads = 2;

}  // namespace

RankDevices::RankDevices(const TierModel& machine, int ranks, Bytes capacity,
                         Executor* executor)
    : drive_(DriveModelOf(machine)), file_calls_(kFileThreads) {
  SimulatedDeviceOptions options;
  options.capacity = capacity;
  options.links = LinkModelsOf(machine, Duplex::kFull);
  options.executor = executor;
  options.timer = &timer_;
  options.workers = &WorkerPool::Process();
  for (int rank = 0; rank < ranks; ++rank) {
    devices_.push_back(std::make_unique<SimulatedDevice>(options));
    drives_.push_back(std::make_unique<SimulatedLinks>(drive_));
  }
}

IoQueueFactory RankDevices::nvme_queue(size_t rank) {
  if (!drive_.to_device && !drive_.from_device) return nullptr;
  SimulatedIoQueueOptions options;
  options.links = drives_[rank].get();
  options.executor = &file_calls_;
  options.timer = &timer_;
  return [options](size_t) { return MakeSimulatedIoQueue(options); };
}

RankLinks RankDevices::links(size_t rank) const {
  const SimulatedDevice& device = *devices_[rank];
  const SimulatedLinks& drive = *drives_[rank];
  return {.to_device = device.link_use(CopyKind::kToDevice),
          .from_device = device.link_use(CopyKind::kFromDevice),
          .nvme_read = drive.use(CopyKind::kToDevice),
          .nvme_write = drive.use(CopyKind::kFromDevice)};
}

}  // namespace castor::gpt
