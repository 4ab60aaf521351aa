// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_TIER_POOL_H_
#define CASTOR_OFFLOAD_TIER_POOL_H_

// A TierPool hands out the slots of one tier for one rank. Slots come in
// classes of one size each, cut from one slab (or one file) at start:
//
//   0            class 0: n0 slots       class 1: n1 slots          size
//   |  slot  |  slot  |  slot  |  slot  |slot|slot|slot|slot|
//
// The budget is hard: the classes together fit it or the pool is not made, and
// every Take and Give checks that bytes in use stay within it. Nothing falls
// through to another allocator, and after Create nothing allocates. The same
// calls give the same slots: the lowest free index first.
//
// Reuse is ordered by events, as a stream-ordered allocator does: Give names
// the event after which the bytes are free, and the next Take hands it on, so
// that neither call blocks. Owner thread only.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/event.h"

namespace castor {

struct SlotClass {
  Bytes slot_bytes;
  int64_t slots = 0;
};

// One slot, taken. A value: the pool checks that it is given back once.
struct Slot {
  int32_t slot_class = -1;
  int32_t index = -1;
  Bytes offset;  // from the start of the slab or file
  Bytes size;
  std::byte* data = nullptr;  // null on NVMe
  Event free_after;           // its previous user's last event

  bool valid() const { return slot_class >= 0; }
};

struct PoolStats {
  Bytes budget;
  Bytes reserved;  // what the classes add up to: the slab
  Bytes in_use;
  Bytes peak;  // highest in_use since the start
  int64_t takes = 0;
  int64_t gives = 0;
};

class TierPool {
 public:
  // `base` is the slab's start, null for NVMe; the pool does not own it.
  // Infeasible, with the numbers, when the classes add up to more than
  // `budget`. Slot sizes must be positive multiples of 512 (device) or 4096
  // (host, NVMe) bytes. REQUIRES: `base` is so aligned, and then every slot is.
  static Result<TierPool> Create(Tier tier, Bytes budget,
                                 std::span<const SlotClass> classes,
                                 std::byte* base);

  // A slot of `slot_class`. TierFull, with the counts, when all are taken.
  // REQUIRES, here and below: 0 <= slot_class < classes().
  Result<Slot> Take(int32_t slot_class);
  // CHECKs that the slot is this pool's and taken. `free_after`: when its bytes
  // may be reused.
  void Give(const Slot& slot, Event free_after);

  Tier tier() const { return tier_; }
  int64_t free_slots(int32_t slot_class) const;
  const SlotClass& slot_class(int32_t slot_class) const;
  int32_t classes() const { return static_cast<int32_t>(classes_.size()); }
  const PoolStats& stats() const { return stats_; }

 private:
  struct ClassState {
    SlotClass shape;
    Bytes offset;               // of its first slot
    std::vector<int32_t> free;  // a heap: lowest index on top
    std::vector<bool> taken;
    std::vector<Event> free_after;  // per slot
  };

  TierPool(Tier tier, Bytes budget, std::byte* base);

  const ClassState& State(int32_t slot_class) const;
  ClassState& State(int32_t slot_class);
  // The invariants, at every operation.
  void CheckBudget() const;

  Tier tier_;
  std::byte* base_;
  std::vector<ClassState> classes_;
  PoolStats stats_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_TIER_POOL_H_
