// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/simulation/shard_places.h"

#include <algorithm>
#include <span>
#include <utility>

#include "chunk/base/check.h"

namespace castor::internal {

ShardPlaces::ShardPlaces(SlotPool* pool, const PlanProblem* problem)
    : pool_(pool),
      problem_(problem),
      copies_(problem->param_class.size()),
      classes_(problem->slots.size()) {
  for (size_t k = 0; k < classes_.size(); ++k) {
    classes_[k].per_slot = static_cast<size_t>(problem->ShardsPerSlot(k));
  }
}

void ShardPlaces::Hold(int32_t slot_class, int64_t slots) {
  ClassPlaces& places = classes_[static_cast<size_t>(slot_class)];
  while (std::ssize(places.slots) > slots) GiveOne(slot_class);
  while (std::ssize(places.slots) < slots &&
         pool_->free_slots(slot_class) > 0) {
    SimSlot slot = pool_->Take(slot_class);
    places.holds.resize(places.holds.size() + places.per_slot);
    places.free_after.resize(places.holds.size(), slot.free_after);
    places.slots.push_back(std::move(slot));
  }
}

bool ShardPlaces::GiveOne(int32_t slot_class) {
  ClassPlaces& places = classes_[static_cast<size_t>(slot_class)];
  if (places.slots.empty()) return false;
  const size_t first = places.holds.size() - places.per_slot;
  for (size_t place = first; place < places.holds.size(); ++place) {
    if (places.holds[place].valid()) Drop(places.holds[place]);
  }
  pool_->Give(places.slots.back(),
              AllOf(std::span(places.free_after).subspan(first)));
  places.slots.pop_back();
  places.holds.resize(first);
  places.free_after.resize(first);
  return true;
}

bool ShardPlaces::has_place(ChunkId chunk) const {
  const std::vector<ChunkId>& holds =
      classes_[static_cast<size_t>(problem_->param_class[chunk.index()])].holds;
  return std::find(holds.begin(), holds.end(), ChunkId()) != holds.end();
}

SimEvent ShardPlaces::Take(ChunkId chunk) {
  CASTOR_CHECK(!has(chunk));
  ClassPlaces& places = ClassOf(chunk);
  const auto free =
      std::find(places.holds.begin(), places.holds.end(), ChunkId());
  CASTOR_CHECK(free != places.holds.end());
  *free = chunk;
  const auto place = static_cast<size_t>(free - places.holds.begin());
  copies_[chunk.index()].place = static_cast<int32_t>(place);
  return std::exchange(places.free_after[place], SimEvent());
}

void ShardPlaces::SetReady(ChunkId chunk, SimEvent ready) {
  Copy& copy = copies_[chunk.index()];
  copy.ready = ready;
  copy.busy = std::move(ready);
}

void ShardPlaces::AddReader(ChunkId chunk, SimEvent reader) {
  copies_[chunk.index()].busy = std::move(reader);
}

void ShardPlaces::Drop(ChunkId chunk) {
  CASTOR_CHECK(has(chunk));
  ClassPlaces& places = ClassOf(chunk);
  Copy& copy = copies_[chunk.index()];
  const auto place = static_cast<size_t>(copy.place);
  places.holds[place] = ChunkId();
  places.free_after[place] = std::move(copy.busy);
  copy = Copy();
}

}  // namespace castor::internal
