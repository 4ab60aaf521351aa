// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_SHARDS_SHARD_PLACES_H_
#define CASTOR_OFFLOAD_SHARDS_SHARD_PLACES_H_

// Copies of a rank's shards on its device, for gathers that are to come. They
// lie in slots of gathered chunks, each of which gives places for as many
// shards as it holds; a plan says how many slots do so. Takes these slots from
// the pool and gives them back. Places are reused by events, as slots are.
// Allocates only when the number of slots changes. Owner thread only. Part of
// the memory manager (memory_manager.h).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "placement/plan.h"

namespace castor {

class ShardPlaces {
 public:
  // Both outlive it; slot classes of the problem are the pool's first.
  ShardPlaces(TierPool* device, const PlanProblem* problem);
  // Gives all slots back.
  ~ShardPlaces() { Clear(); }
  ShardPlaces(const ShardPlaces&) = delete;
  ShardPlaces& operator=(const ShardPlaces&) = delete;

  // Holds so many slots of the class from now on, or as many as are free. What
  // lies in those that are given back is dropped.
  void Hold(int32_t slot_class, int64_t slots);
  // Gives one slot of the class back; false where none is held.
  bool GiveOne(int32_t slot_class);
  // Gives all of them back.
  void Clear();

  bool has(ChunkId chunk) const { return copies_[chunk.index()].place >= 0; }
  // Whether a copy of the chunk's shard has a place, not taken, to go to.
  bool has_place(ChunkId chunk) const;
  // A place for a copy of the chunk's shard, and when its bytes are free.
  // REQUIRES: has_place, and there is no copy yet.
  struct Place {
    std::byte* data = nullptr;
    Event free_after;
  };
  Place Take(ChunkId chunk);

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
  struct Copy {
    int32_t place = -1;  // of its class; -1: there is none
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
  static std::byte* DataOf(const ClassPlaces& places, size_t place);

  TierPool* const device_;
  const PlanProblem* const problem_;
  std::vector<Copy> copies_;          // by ChunkId
  std::vector<ClassPlaces> classes_;  // by class of the problem
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_SHARDS_SHARD_PLACES_H_
