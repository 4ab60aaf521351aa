// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MEMORY_MEMORY_PLAN_NEEDS_H_
#define CASTOR_COLLECTIVES_MEMORY_MEMORY_PLAN_NEEDS_H_

// The inside of PlanMemory, between its two steps: homes are chosen
// (memory_plan.cc), then budgets are cut into slots for states at those homes
// (memory_plan_cut.cc). Both ask what gathered slots a step needs.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "collectives/memory/memory_plan.h"
#include "offload/memory/tier_pool.h"
#include "placement/homes/home_policy.h"
#include "placement/run_event.h"

namespace castor::internal {

// What a rank needs whatever the homes of its states: the classes of gathered
// slots, and the engine's own slots. Immutable. `input` outlives it and has
// chunks.
class SlotNeeds {
 public:
  explicit SlotNeeds(const MemoryPlanInput& input);

  const MemoryPlanInput& input() const { return input_; }
  const ChunkLayout& layout() const { return *input_.layout; }
  size_t chunks() const { return shapes_.size(); }
  // Of each chunk's states, by ChunkId.
  const std::vector<ChunkStates>& shapes() const { return shapes_; }

  // Sizes of gathered slots, their numbers 0; the class of each chunk's
  // parameters and of its gradient, by ChunkId.
  const std::vector<SlotClass>& gathered() const { return gathered_; }
  const std::vector<int32_t>& slot_class() const { return slot_class_; }
  const std::vector<int32_t>& grad_class() const { return grad_class_; }
  // The class with the most chunks: the one worth prefetching.
  size_t main_class() const { return main_class_; }

  // Slots by class that a step holds at once. `direct`, by ChunkId: as in
  // GatheredNeed.
  std::vector<int64_t> Slots(const std::vector<bool>& direct) const;
  // So many slots, by class.
  Bytes GatheredBytes(const std::vector<int64_t>& slots) const;

  // Elements of a shard that pass through staging at once. Larger shards move
  // in pieces of so many; 0: none is larger.
  Elements piece() const { return piece_; }
  // What one slot of staging holds: the largest piece of any state.
  Bytes staging_slot() const { return staging_slot_; }

  Bytes lease_bytes() const;
  Bytes norm_bytes() const;

  // Which whole parameters are at home on the device: they are used where they
  // are.
  std::vector<bool> Direct(const std::vector<ChunkHomes>& homes) const;
  bool trainable(size_t chunk) const;
  // Whether the chunk's gradient has a place in a tier.
  bool has_grad(size_t chunk) const;

 private:
  // Of a chunk's whole gradient.
  Bytes GradBytes(ChunkId chunk) const;
  // Chunks of nearly one size share slots of the larger, where a step holds no
  // more bytes so: a slot that one size leaves idle serves the others.
  void ShareClasses();
  void ChoosePiece();

  const MemoryPlanInput& input_;
  std::vector<ChunkStates> shapes_;
  std::vector<SlotClass> gathered_;
  std::vector<int32_t> slot_class_;
  std::vector<int32_t> grad_class_;
  size_t main_class_ = 0;
  Elements piece_{0};
  Bytes staging_slot_;
};

// Adds slots of one size to a pool's classes, of which those before `first` are
// left alone; returns the class.
int32_t AddSlots(std::vector<SlotClass>& classes, size_t first, Bytes size,
                 int64_t slots);

// What is on the host for bytes on their way.
struct StagingSlots {
  Bytes slot_bytes;
  int64_t slots = 0;
  int64_t fetch_slots = 0;  // of these, for fetches alone
};

// The plan of states at `homes`. What the device's budget has left over keeps
// more gathered copies. REQUIRES: the budgets hold it.
MemoryPlan CutIntoSlots(const SlotNeeds& needs,
                        const std::vector<ChunkHomes>& homes,
                        StagingSlots staging, int depth);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_MEMORY_MEMORY_PLAN_NEEDS_H_
