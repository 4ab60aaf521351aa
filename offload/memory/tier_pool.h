// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_MEMORY_TIER_POOL_H_
#define CASTOR_OFFLOAD_MEMORY_TIER_POOL_H_

// A TierPool hands out the slots of one tier for one rank. Slots come in
// classes of one size each, cut from one slab (or one file) at start:
//
//   0            class 0: n0 slots       class 1: n1 slots          size
//   |  slot  |  slot  |  slot  |  slot  |slot|slot|slot|slot|
//
// The budget is hard: the classes together fit it or the pool is not made, and
// every Take and Give checks that bytes in use stay within it. Nothing falls
// through to another allocator, and after Create nothing allocates. The same
// calls give the same slots: the one that has been free for longest, at first
// the lowest index, so that who takes one seldom waits for its last user.
//
// Reuse is ordered by events, as a stream-ordered allocator does: Give names
// the event after which the bytes are free, and the next Take hands it on, so
// that neither call blocks. Who finds a class full may wait for the next slot
// of it that is given back, where one is on its way. Owner thread only.
//
// For a while a pool may hold more classes, cut from other memory: that is how
// a tier takes in what a parked device held, within its budget.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/lanes/event.h"

namespace castor {

struct SlotClass {
  Bytes slot_bytes;
  int64_t slots = 0;
};

// Why a slot is held, which says whether anybody may wait for it.
enum class SlotHold : uint8_t {
  kPassing,  // for work that ends: it comes back without being asked for
  kSettled,  // for good, or for as long as its holder pleases
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
  Result<Slot> Take(int32_t slot_class, SlotHold hold = SlotHold::kPassing);
  // Calls `granted` with a slot: now if one is free, else from the Give that
  // brings the next that nobody asked for before. TierFull, with the counts,
  // when none would ever come: all are settled, or others wait for those that
  // are not. Then `granted` is not called.
  using Granted = std::function<void(Slot)>;
  Status TakeNext(int32_t slot_class, SlotHold hold, Granted granted);
  // The holder of a settled slot will give it back as soon as what it waits for
  // is there. REQUIRES: taken.
  void MarkPassing(const Slot& slot);
  // CHECKs that the slot is this pool's and taken. `free_after`: when its bytes
  // may be reused.
  void Give(const Slot& slot, Event free_after);

  // From now on each slot goes back through `hook`, which may give its bytes a
  // last use: it answers when they are free, no sooner than it is told.
  using GiveHook = std::function<Event(const Slot&, Event free_after)>;
  void HookGive(GiveHook hook) { on_give_ = std::move(hook); }

  // Adds classes, cut from `base` (null for NVMe, where their offsets follow
  // those of the others), and returns the number of the first. Infeasible, with
  // the numbers, when the budget does not hold them too. Shapes as for Create.
  Result<int32_t> Extend(std::span<const SlotClass> classes, std::byte* base);
  // Takes the classes from `first` on away again. REQUIRES: none of their slots
  // is taken, nobody waits for one, and no event of theirs is waited for.
  void Retract(int32_t first);
  // One more slot of the class, at `data`, behind the others of the tier.
  // Infeasible, with the numbers, when the budget does not hold it too.
  Status AddSlot(int32_t slot_class, std::byte* data);
  // The memory of the classes of Create is at `base` from now on, and that of
  // the slots added to them nowhere. REQUIRES: none of their slots is taken,
  // and their bytes are free.
  void Rebase(std::byte* base);
  // The memory of the class's slot `index`, which was added, is at `data` from
  // now on.
  void RebaseAdded(int32_t slot_class, int64_t index, std::byte* data);
  // When the bytes of all slots of the class that are not taken are free.
  Event AllFree(int32_t slot_class) const;

  Tier tier() const { return tier_; }
  int64_t free_slots(int32_t slot_class) const;
  // Requests of TakeNext that were not granted yet.
  int64_t waiting(int32_t slot_class) const;
  // The class of the smallest slots that hold `size`, the first of several;
  // -1 where none does. With `free`, among those with a free slot.
  int32_t SmallestClass(Bytes size, bool free) const;
  const SlotClass& slot_class(int32_t slot_class) const;
  int32_t classes() const { return static_cast<int32_t>(classes_.size()); }
  const PoolStats& stats() const { return stats_; }

 private:
  struct ClassState {
    SlotClass shape;
    Bytes offset;  // of its first slot
    // A ring with room for all slots: `free_slots` from `first_free` on, the
    // one that has been free for longest first.
    std::vector<int32_t> free;
    size_t first_free = 0;
    size_t free_slots = 0;
    std::vector<bool> taken;
    std::vector<bool> settled;      // of those taken
    std::vector<Event> free_after;  // per slot
    std::byte* base = nullptr;      // of its first slot
    // Those that were added, behind the ones cut from `base`.
    struct Added {
      Bytes offset;
      std::byte* data = nullptr;
    };
    std::vector<Added> added;
    int64_t passing = 0;  // taken and not settled
    std::deque<std::pair<SlotHold, Granted>> waiting;
  };

  TierPool(Tier tier, Bytes budget);

  const ClassState& State(int32_t slot_class) const;
  ClassState& State(int32_t slot_class);
  // Where a slot of the class lies.
  static ClassState::Added PlaceOf(const ClassState& state, int64_t index);
  // The invariants, at every operation.
  void CheckBudget() const;

  // Classes from `offset` on; `base` as for Extend.
  void AddClasses(std::span<const SlotClass> classes, Bytes offset,
                  std::byte* base);
  static Status CheckShapes(Tier tier, Bytes budget, Bytes reserved,
                            std::span<const SlotClass> classes, Bytes* size);
  Slot Grant(int32_t slot_class, SlotHold hold);
  Status Full(int32_t slot_class) const;

  Tier tier_;
  int32_t first_extension_ = 0;  // classes of Create come before
  std::vector<ClassState> classes_;
  PoolStats stats_;
  GiveHook on_give_;  // may be null
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_MEMORY_TIER_POOL_H_
