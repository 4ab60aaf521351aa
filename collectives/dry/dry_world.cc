// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/dry/dry_world.h"

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>

#include "collectives/dry/dry_communicator.h"
#include "offload/nvme/queue/file_calls.h"
#include "offload/nvme/queue/simulated_io_queue.h"

namespace castor {

namespace {

std::optional<RingModel> RingOf(const DryWorldOptions& options,
                                std::optional<RingModel> TierModel::*ring) {
  return options.machine ? (*options.machine).*ring : std::nullopt;
}

}  // namespace

DryWorld::DryWorld(const DryWorldOptions& options, internal::Meetings* meetings)
    : instant_(!options.machine),
      nvme_piece_(instant_ ? MiB(512) : options.nvme_piece),
      wires_(&executor_, options.machine.value_or(TierModel()),
             options.device_memory),
      device_({.name = "device",
               .capacity = options.device_capacity,
               .executor = &executor_,
               .timer = &executor_,
               .wires = &wires_,
               .dry = true,
               .instant = !options.machine}),
      host_({.wires = &wires_, .dry = true}, &executor_),
      communicator_(MakeDryCommunicator(
          {.world = options.world,
           .rank = options.rank,
           .buffers = options.communicator_buffers,
           .all_gather = RingOf(options, &TierModel::all_gather),
           .reduce_scatter = RingOf(options, &TierModel::reduce_scatter),
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
    IoQueueOptions queue;
    // As many bytes in flight as a run has.
    queue.depth = static_cast<int>(
        std::max<int64_t>(2, queue.piece * queue.depth / nvme_piece_));
    queue.piece = nvme_piece_;
    return MakeSimulatedIoQueue({.queue = queue,
                                 .wires = &wires_,
                                 .executor = &executor_,
                                 .calls = {.pread = all, .pwrite = all}});
  };
  options->workers = nullptr;
  options->recorder = nullptr;
  options->log = &silent_;
  options->poison = false;
  if (!options->dry) options->dry.emplace();
  options->dry->traffic = &traffic_;
  options->dry->instant = instant_;
  options->dry->nvme_piece = nvme_piece_;
}

}  // namespace castor
