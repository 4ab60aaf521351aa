// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_SHARDS_QUEUED_WORK_H_
#define CASTOR_OFFLOAD_SHARDS_QUEUED_WORK_H_

// Work that waits for its turn in a shard store (shard_store_work.cc). The
// owner thread makes the values; the thread that runs the work has them then.
// Part of the shard store (shard_store.h).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/lanes/pick_queue.h"
#include "offload/memory/tier_pool.h"
#include "offload/shards/rank_pools.h"
#include "offload/shards/shard_store.h"
#include "offload/shards/window_work.h"

namespace castor {

// One window of work.
struct ShardStore::WorkLeg {
  WindowRequest request;
  Tier home = Tier::kDevice;  // of kScratch: where it comes from
  Place place;
  RankPools::NvmePlace drive;
  RankPools::NvmePlace drive_to;  // where new bytes go
  Bytes begin;                    // of the range in its piece
  bool staged = false;
  bool reads = false;        // before the work
  bool drive_write = false;  // of the extent, behind the work
  bool device_write = false;
  std::byte* data = nullptr;  // of the range, in host memory
  std::byte* to = nullptr;    // of its new bytes; null: the same
  EventSource read;
  EventSource end;

  bool writes() const {
    return request.mode == WindowMode::kWrite ||
           request.mode == WindowMode::kReadWrite;
  }
};

struct ShardStore::QueuedWork {
  WindowWork work;
  std::vector<WorkLeg> legs;
  int32_t step = 0;  // in which the work was queued
  EventSource over;
  std::vector<std::byte*> slots;  // of staging, while the work runs
};

struct ShardStore::WorkQueue {
  std::vector<Slot> slots;      // the work's own staging
  PickQueue<std::byte*> picks;  // of these
  std::atomic<int64_t> not_begun = 0;
  // On the way back to the device the most urgent is first too. Where copies
  // are hardware's, one is queued while another runs.
  PickQueue<int> ups;
  // Guards the lanes: threads that end a transfer queue copies.
  std::mutex mutex;
  std::unique_ptr<Lane> from_device;
  std::unique_ptr<Lane> back_to_device;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_SHARDS_QUEUED_WORK_H_
