// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/dry/dry_world.h"

#include <sys/types.h>

#include <cstddef>
#include <string_view>

#include "collectives/dry/dry_communicator.h"
#include "offload/nvme/queue/file_calls.h"
#include "offload/nvme/queue/simulated_io_queue.h"

namespace castor {

DryWorld::DryWorld(const DryWorldOptions& options, internal::Meetings* meetings)
    : wires_(&executor_, options.machine, options.device_memory),
      device_({.name = "device",
               .capacity = options.device_capacity,
               .executor = &executor_,
               .timer = &executor_,
               .wires = &wires_,
               .dry = true}),
      host_({.wires = &wires_, .dry = true}, &executor_),
      communicator_(
          MakeDryCommunicator({.world = options.world,
                               .rank = options.rank,
                               .buffers = options.communicator_buffers,
                               .all_gather = options.machine.all_gather,
                               .reduce_scatter = options.machine.reduce_scatter,
                               .executor = &executor_,
                               .timer = &executor_,
                               .meetings = meetings,
                               .traffic = &traffic_,
                               .busy_ns = &collectives_ns_})),
      silent_([](LogLevel, std::string_view) {}) {}

void DryWorld::Furnish(ZeroOptions* options) {
  options->executor = &executor_;
  options->clock = &executor_;
  options->device = &device_;
  options->make_device_slab = nullptr;
  options->host_passes = &host_;
  options->nvme_checksums = &executor_;
  options->make_nvme_queue = [this](size_t) {
    // Nothing is read or written, and all of it at once.
    const auto all = [](int, const void*, size_t size, off_t) {
      return static_cast<ssize_t>(size);
    };
    return MakeSimulatedIoQueue({.wires = &wires_,
                                 .executor = &executor_,
                                 .calls = {.pread = all, .pwrite = all}});
  };
  options->workers = nullptr;
  options->recorder = nullptr;
  options->log = &silent_;
  options->poison = false;
  if (!options->dry) options->dry.emplace();
  options->dry->traffic = &traffic_;
}

}  // namespace castor
