// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_SHARDS_LOAD_TICKET_STATE_H_
#define CASTOR_OFFLOAD_SHARDS_LOAD_TICKET_STATE_H_

// What a LoadTicket shares with the work of its load: whether any piece has
// begun to write to the load's target, or all was taken back before. Either
// happens once; whoever is first decides. `Begin` and `cancelled` are for any
// thread, the rest is the owner's. Part of the shard store (shard_store.h).

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/nvme/store/nvme_store.h"
#include "offload/shards/shard_store.h"

namespace castor {

struct LoadTicket::State {
  // Whether the load may go on. False once it was taken back.
  bool Begin() { return Decide(Phase::kBegun) || phase_ == Phase::kBegun; }
  // Whether it is taken back now. False once it has begun.
  bool Cancel() { return Decide(Phase::kCancelled); }
  bool cancelled() const { return phase_.load() == Phase::kCancelled; }

  ChunkId chunk;
  // The copies to the device as they were counted.
  Tier from = Tier::kHost;
  Bytes bytes;
  int64_t copies = 0;
  bool urgent = false;  // raised
  // Reads from the drive, as they were counted.
  struct Read {
    NvmeStore* drive;
    NvmeTicket transfer;
    Bytes extent;
  };
  std::vector<Read> reads;

 private:
  enum class Phase : uint8_t { kWaiting, kBegun, kCancelled };

  bool Decide(Phase phase) {
    Phase waiting = Phase::kWaiting;
    return phase_.compare_exchange_strong(waiting, phase);
  }

  std::atomic<Phase> phase_ = Phase::kWaiting;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_SHARDS_LOAD_TICKET_STATE_H_
