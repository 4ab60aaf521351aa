// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_SIMULATION_SHARD_PLACES_H_
#define CASTOR_PLACEMENT_SIMULATION_SHARD_PLACES_H_

// Copies of a simulated rank's shards on its device, for gathers that are to
// come: which places they take, and when these are free, as
// offload/shards/shard_places.h has them. Owner thread only. Part of the
// gathered copies (gathered_copies.h).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/base/ids.h"
#include "placement/plan.h"
#include "placement/timeline/event_loop.h"
#include "placement/timeline/slot_pool.h"

namespace castor::internal {

class ShardPlaces {
 public:
  // Both outlive it; the pool's classes are the problem's.
  ShardPlaces(SlotPool* pool, const PlanProblem* problem);

  // Holds so many slots of the class from now on, or as many as are free. What
  // lies in those that are given back is dropped.
  void Hold(int32_t slot_class, int64_t slots);
  // Gives one slot of the class back; false where none is held.
  bool GiveOne(int32_t slot_class);

  bool has(ChunkId chunk) const { return copies_[chunk.index()].place >= 0; }
  // Whether a copy of the chunk's shard has a place, not taken, to go to.
  bool has_place(ChunkId chunk) const;
  // A place for a copy of the chunk's shard: when its bytes are free. REQUIRES:
  // has_place, and there is no copy yet.
  SimEvent Take(ChunkId chunk);

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
  struct Copy {
    int32_t place = -1;  // of its class; -1: there is none
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

  SlotPool* const pool_;
  const PlanProblem* const problem_;
  std::vector<Copy> copies_;          // by ChunkId
  std::vector<ClassPlaces> classes_;  // by class of the problem
};

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_SIMULATION_SHARD_PLACES_H_
