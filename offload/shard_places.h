// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_SHARD_PLACES_H_
#define CASTOR_OFFLOAD_SHARD_PLACES_H_

// Copies of a rank's shards on its device, for gathers that are to come. They
// lie in slots of gathered chunks, each of which gives places for as many
// shards as it holds; a plan says how many slots do so. Takes these slots from
// the pool and gives them back. Copies of one class may lie in room of the
// lease arena as well, as far as no lease reaches: places there are lent, and
// copies leave them before a lease comes. Places are reused by events, as slots
// are. Allocates only when the number of slots changes. Owner thread only.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "offload/event.h"
#include "offload/lease_arena.h"
#include "offload/tier_pool.h"
#include "placement/plan.h"

namespace castor {

class ShardPlaces {
 public:
  // All outlive it; slot classes of the problem are the pool's first. `leases`:
  // what places are lent of (PlanProblem::lent_class); may be null where none
  // are.
  ShardPlaces(TierPool* device, const PlanProblem* problem, LeaseArena* leases);
  // Gives all slots back.
  ~ShardPlaces() { Clear(); }
  ShardPlaces(const ShardPlaces&) = delete;
  ShardPlaces& operator=(const ShardPlaces&) = delete;

  // Holds so many slots of the class from now on, or as many as are free. What
  // lies in those that are given back is dropped.
  void Hold(int32_t slot_class, int64_t slots);
  // Gives one slot of the class back; false where none is held.
  bool GiveOne(int32_t slot_class);
  // Of what is lent, copies lie in the first so many places from now on, or in
  // as many as there are: who lies beyond them is to move or to be dropped.
  void Lend(int64_t places);
  int64_t lent() const { return lent_; }
  // The first chunk whose copy lies beyond them; not valid: there is none.
  ChunkId Beyond();
  // Gives all slots back and lends nothing: there are no copies any more.
  void Clear();

  bool has(ChunkId chunk) const {
    return copies_[chunk.index()].place != kNowhere;
  }
  // Whether a copy of the chunk's shard has a place, not taken, to go to.
  bool has_place(ChunkId chunk) const { return FreePlace(chunk) != kNowhere; }
  // A place for a copy of the chunk's shard, and when its bytes are free.
  // REQUIRES: has_place, and there is no copy yet.
  struct Place {
    std::byte* data = nullptr;
    Event free_after;
  };
  Place Take(ChunkId chunk);
  // Another place for a copy, to which it is to be brought from data() of
  // before, when that is ready. REQUIRES: has, has_place; SetMoved follows.
  Place Move(ChunkId chunk);
  void SetMoved(ChunkId chunk, Event moved);

  // REQUIRES, here and below: has.
  std::byte* data(ChunkId chunk) const;
  const Event& ready(ChunkId chunk) const {
    return copies_[chunk.index()].ready;
  }
  // When the bytes are there; of the work that reads them, when it is done.
  // Work is told in the order in which it ends.
  void SetReady(ChunkId chunk, Event ready);
  void AddReader(ChunkId chunk, Event reader);
  void Drop(ChunkId chunk);

 private:
  static constexpr int32_t kNowhere = -1;

  struct Copy {
    // Of its class, those in slots first, from kFirstLent on those that are
    // lent; kNowhere: there is no copy.
    int32_t place = kNowhere;
    int32_t left = kNowhere;  // while it moves, from where
    Event ready;
    Event busy;  // the last that reads or writes it
  };
  struct ClassPlaces {
    int64_t per_slot = 0;
    std::vector<Slot> slots;
    std::vector<ChunkId> holds;     // by place; not valid: free
    std::vector<Event> free_after;  // by place
  };

  ClassPlaces& ClassOf(ChunkId chunk) {
    return classes_[static_cast<size_t>(problem_->param_class[chunk.index()])];
  }
  const ClassPlaces& ClassOf(ChunkId chunk) const {
    return const_cast<ShardPlaces*>(this)->ClassOf(chunk);
  }
  static constexpr int32_t kFirstLent = int32_t{1} << 30;
  static bool IsLent(int32_t place) { return place >= kFirstLent; }

  // The first free place for a copy of the chunk's shard, those in slots
  // before those that are lent; kNowhere: there is none.
  int32_t FreePlace(ChunkId chunk) const;
  // Makes a place the chunk's, and no longer so.
  Place Occupy(ChunkId chunk, int32_t place);
  void Vacate(ChunkId chunk, int32_t place, Event free_after);
  std::byte* DataOf(ChunkId chunk, int32_t place) const;
  // Of one that is lent, where it begins in the arena.
  Bytes BeginOf(int32_t place) const {
    return problem_->lent_arena -
           problem_->lent_place * (int64_t{place - kFirstLent} + 1);
  }

  TierPool* const device_;
  const PlanProblem* const problem_;
  LeaseArena* const leases_;
  std::vector<ChunkId> lent_holds_;   // by lent place; not valid: free
  int64_t lent_ = 0;                  // of these, those that copies may lie in
  int64_t lent_end_ = 0;              // none lies in this one, or beyond
  std::vector<Copy> copies_;          // by ChunkId
  std::vector<ClassPlaces> classes_;  // by class of the problem
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_SHARD_PLACES_H_
