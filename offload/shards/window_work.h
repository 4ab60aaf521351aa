// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_SHARDS_WINDOW_WORK_H_
#define CASTOR_OFFLOAD_SHARDS_WINDOW_WORK_H_

// Work of the host on shards that begins by urgency (lanes/pick_queue.h), and
// not in the order in which the caller queues such work. Values; made on the
// owner thread. Part of the shard store (shard_store.h).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "chunk/base/unique_function.h"
#include "offload/lanes/event.h"
#include "offload/lanes/pick_queue.h"
#include "offload/shards/host_window.h"

namespace castor {

// Where a window's bytes are, and where new ones go: the same place, but for
// work that writes aside of bytes in host memory.
struct WorkBytes {
  std::byte* data = nullptr;
  std::byte* to = nullptr;
};

// Set once nobody wants the outcome of work any more: what has not begun then
// never does. Thread-safe.
using WorkDropped = std::shared_ptr<std::atomic<bool>>;

struct WindowWork {
  std::vector<WindowRequest> windows;  // at most one on a piece of a shard
  int64_t key = 0;                     // the least is the most urgent
  PickPlace place = PickPlace::kGivesWay;
  WorkDropped dropped = nullptr;  // null: the outcome is wanted
  // Called with the places of the windows' bytes, in the order of `windows`,
  // once these bytes are there. Completes `used` when the work is over; what
  // was written then goes home. On any thread. Not called where bytes do not
  // arrive.
  UniqueFunction<void(std::span<const WorkBytes> at, EventSource used)> run;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_SHARDS_WINDOW_WORK_H_
