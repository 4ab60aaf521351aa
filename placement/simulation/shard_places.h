// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_SIMULATION_SHARD_PLACES_H_
#define CASTOR_PLACEMENT_SIMULATION_SHARD_PLACES_H_

// Copies of a simulated rank's shards on its device, for gathers that are to
// come: which places they take, in slots and in what leases leave, and when
// these are free, as offload/shard_places.h has them. Owner thread only.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/base/ids.h"
#include "placement/plan.h"
#include "placement/simulation/event_loop.h"
#include "placement/simulation/slot_pool.h"

namespace castor::internal {

class ShardPlaces {
 public:
  // Both outlive it; the pool's classes are the problem's, and leases leave all
  // places that may be lent.
  ShardPlaces(SlotPool* pool, const PlanProblem* problem);

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
  // When places from `begin` to `end`, which nobody has, are free.
  SimEvent FreeAfter(int64_t begin, int64_t end) const;
  // A lease that took them ends with `returned`.
  void Return(int64_t begin, int64_t end, const SimEvent& returned);

  bool has(ChunkId chunk) const {
    return copies_[chunk.index()].place != kNowhere;
  }
  // Whether a copy of the chunk's shard has a place, not taken, to go to.
  bool has_place(ChunkId chunk) const { return FreePlace(chunk) != kNowhere; }
  // A place for a copy of the chunk's shard: when its bytes are free. REQUIRES:
  // has_place, and there is no copy yet.
  SimEvent Take(ChunkId chunk);
  // Another place for a copy. REQUIRES: has, has_place; SetMoved follows.
  SimEvent Move(ChunkId chunk);
  void SetMoved(ChunkId chunk, SimEvent moved);

  // REQUIRES, here and below: has.
  const SimEvent& ready(ChunkId chunk) const {
    return copies_[chunk.index()].ready;
  }
  // When the bytes are there; of the work that reads them, when it is done.
  // Work is told in the order in which it ends.
  void SetReady(ChunkId chunk, SimEvent ready);
  void AddReader(ChunkId chunk, SimEvent reader);
  void Drop(ChunkId chunk);

 private:
  static constexpr int32_t kNowhere = -1;
  static constexpr int32_t kFirstLent = int32_t{1} << 30;

  struct Copy {
    // Of its class, those in slots first, from kFirstLent on those that are
    // lent; kNowhere: there is no copy.
    int32_t place = kNowhere;
    int32_t left = kNowhere;  // while it moves, from where
    SimEvent ready;
    SimEvent busy;  // the last that reads or writes it
  };
  struct ClassPlaces {
    size_t per_slot = 0;
    std::vector<SimSlot> slots;
    std::vector<ChunkId> holds;        // by place; not valid: free
    std::vector<SimEvent> free_after;  // by place
  };

  ClassPlaces& ClassOf(ChunkId chunk) {
    return classes_[static_cast<size_t>(problem_->param_class[chunk.index()])];
  }

  // Who has a place, and when it is free.
  struct PlaceRef {
    ChunkId& holds;
    SimEvent& free_after;
  };
  PlaceRef At(ChunkId chunk, int32_t place);
  int32_t FreePlace(ChunkId chunk) const;
  SimEvent Occupy(ChunkId chunk, int32_t place);
  void Vacate(ChunkId chunk, int32_t place, SimEvent free_after);

  SlotPool* const pool_;
  const PlanProblem* const problem_;
  std::vector<ChunkId> lent_holds_;        // by lent place; not valid: free
  std::vector<SimEvent> lent_free_after_;  // by lent place
  int64_t lent_ = 0;                  // of these, those that copies may lie in
  int64_t lent_end_ = 0;              // none lies in this one, or beyond
  std::vector<Copy> copies_;          // by ChunkId
  std::vector<ClassPlaces> classes_;  // by class of the problem
};

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_SIMULATION_SHARD_PLACES_H_
