// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_SHARDS_STAGING_RING_H_
#define CASTOR_OFFLOAD_SHARDS_STAGING_RING_H_

// The host slots through which bytes pass on their way between the device and
// the drive, or to work on the host. A slot given back names the event after
// which its bytes are free, so the longest free is lent first. Some slots may
// be kept for fetches alone: an optimizer that has asked for all its windows
// fills the others for seconds, and no fetch waits for its slots.
//
// Who asks when too few are there waits for those that come back: requests are
// granted strictly in the order in which they came, each with all its slots at
// once. So a request never holds some of its slots while it waits for others.
// Work is queued on lanes in the order in which it was asked for.
//
// Takes its slots from a pool and gives them back at the end. Owner thread
// only: a grant runs inside Take or inside the Give that made it possible. Part
// of the shard store (shard_store.h).

#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"

namespace castor {

// What slots are asked for.
enum class StagingUse : uint8_t {
  kFetch,  // bytes that go from the drive to the device, or are read at once
  kWork,   // windows, and bytes that go to the drive
};

class StagingRing {
 public:
  // The slots are the callee's until it gives each of them back.
  using Granted = std::function<void(std::span<Slot> slots)>;

  // Takes `slots` slots of `slot_class`, `for_fetch` of them for fetches alone;
  // with 0 these share the others. REQUIRES: the pool has as many; it outlives
  // the ring.
  StagingRing(TierPool* host, int32_t slot_class, int64_t slots,
              int64_t for_fetch = 0);
  // Waits until nobody uses a slot any more, then gives them to the pool.
  // REQUIRES: all are back.
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  // Takes more slots, of this or a larger size, until Shrink: for a while, for
  // work that a rank is not made for. REQUIRES: as for the constructor.
  void Grow(int32_t slot_class, int64_t slots);
  // Gives the pool back what Grow took, and waits until nobody uses it.
  // REQUIRES: all slots are back and nobody waits.
  void Shrink();

  // Calls `granted` with `count` slots, of which 0 serves to keep one's place
  // among those that wait: now, when nobody waits and as many are here, else
  // later. Infeasible, with the numbers, when the ring never has as many; then
  // `granted` is not called.
  Status Take(int64_t count, StagingUse use, Granted granted);
  // The same test alone.
  Status CheckServable(int64_t count, StagingUse use) const;
  // Whether Take would grant at once.
  bool GrantsNow(int64_t count, StagingUse use) const {
    return !OthersWait() && count <= std::ssize(FreeFor(use));
  }
  // Whether a request would wait for its turn, if it takes no slot.
  bool OthersWait() const { return !waiting_.empty() || serving_; }
  // One slot at once. REQUIRES: GrantsNow(1, use).
  Slot TakeOne(StagingUse use);
  // `free_after`: when the bytes may be reused. Grants what it can.
  void Give(Slot slot, Event free_after);

  int64_t slots() const { return slots_; }
  // Slots that are not lent.
  int64_t here() const { return std::ssize(free_) + std::ssize(fetch_free_); }
  // Requests not granted yet.
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  // Requests that had to wait, since the start.
  int64_t waits() const { return waits_; }
  // Of one slot, the smallest; 0 where there is none.
  Bytes slot_bytes() const { return slot_bytes_; }
  // When all slots that are here are free.
  Event AllFree() const;

 private:
  struct Request {
    int64_t count;
    StagingUse use;
    Granted granted;
  };

  bool Separate(StagingUse use) const {
    return use == StagingUse::kFetch && fetch_slots_ > 0;
  }
  const std::deque<Slot>& FreeFor(StagingUse use) const {
    return Separate(use) ? fetch_free_ : free_;
  }
  std::deque<Slot>& FreeFor(StagingUse use) {
    return Separate(use) ? fetch_free_ : free_;
  }
  void Grant(const Request& request);

  TierPool* pool_;
  int64_t slots_ = 0;
  int64_t own_slots_ = 0;    // without those of Grow
  int64_t fetch_slots_ = 0;  // of these, for fetches alone
  Bytes slot_bytes_;
  // The longest free first; what is given back goes where it came from.
  std::deque<Slot> free_;
  std::deque<Slot> fetch_free_;
  std::vector<std::pair<int32_t, int32_t>> fetch_names_;  // class and index
  std::deque<Request> waiting_;
  bool serving_ = false;  // a Give further up grants what it can
  int64_t waits_ = 0;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_SHARDS_STAGING_RING_H_
