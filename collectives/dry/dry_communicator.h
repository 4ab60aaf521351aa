// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_DRY_DRY_COMMUNICATOR_H_
#define CASTOR_COLLECTIVES_DRY_DRY_COMMUNICATOR_H_

// The communicator of one rank that stands for all ranks of a world without
// bytes: the others do the same, at about the same time. A collective moves
// nothing and takes what a ring takes. What ranks agree on is what this rank
// says. How the first and the last of the ranks meet is told by Meetings
// (placement/timeline/meetings.h). Owner thread only.

#include <cstdint>
#include <memory>
#include <optional>

#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "offload/lanes/executor.h"
#include "offload/lanes/timer.h"
#include "placement/tier_model.h"
#include "placement/timeline/meetings.h"
#include "placement/traffic_book.h"

namespace castor {

struct DryCommunicatorOptions {
  int world = 1;
  int rank = 0;
  Bytes buffers = {};  // that its kind would take of the device
  // Of each host; empty: no time.
  std::optional<RingModel> all_gather = {};
  std::optional<RingModel> reduce_scatter = {};
  // All outlive the communicator.
  Executor* executor = nullptr;
  Timer* timer = nullptr;
  internal::Meetings* meetings = nullptr;
  TrafficBook* traffic = nullptr;  // null: nobody counts
  int64_t* busy_ns = nullptr;      // grows by what collectives take; or null
};

std::unique_ptr<Communicator> MakeDryCommunicator(
    const DryCommunicatorOptions& options);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_DRY_DRY_COMMUNICATOR_H_
