// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/shards/shard_places.h"

#include <algorithm>
#include <span>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/status.h"

namespace castor {
namespace {

// What shards are multiples of: 128 elements of two bytes.
constexpr Bytes kShardAlign(256);

}  // namespace

ShardPlaces::ShardPlaces(TierPool* device, const PlanProblem* problem)
    : device_(device),
      problem_(problem),
      copies_(problem->param_class.size()),
      classes_(problem->slots.size()) {
  for (size_t k = 0; k < classes_.size(); ++k) {
    classes_[k].per_slot = problem->ShardsPerSlot(k);
  }
}

void ShardPlaces::Hold(int32_t slot_class, int64_t slots) {
  ClassPlaces& places = classes_[static_cast<size_t>(slot_class)];
  while (static_cast<int64_t>(places.slots.size()) > slots) {
    GiveOne(slot_class);
  }
  while (static_cast<int64_t>(places.slots.size()) < slots &&
         device_->free_slots(slot_class) > 0) {
    Result<Slot> slot = device_->Take(slot_class, SlotHold::kSettled);
    CASTOR_CHECK(slot.ok());
    const size_t all =
        places.holds.size() + static_cast<size_t>(places.per_slot);
    places.holds.resize(all);
    places.free_after.resize(all, slot->free_after);
    places.slots.push_back(*std::move(slot));
  }
}

bool ShardPlaces::GiveOne(int32_t slot_class) {
  ClassPlaces& places = classes_[static_cast<size_t>(slot_class)];
  if (places.slots.empty()) return false;
  const size_t first =
      places.holds.size() - static_cast<size_t>(places.per_slot);
  for (size_t place = first; place < places.holds.size(); ++place) {
    if (places.holds[place].valid()) Drop(places.holds[place]);
  }
  device_->Give(places.slots.back(),
                AllOf(std::span(places.free_after).subspan(first)));
  places.slots.pop_back();
  places.holds.resize(first);
  places.free_after.resize(first);
  return true;
}

void ShardPlaces::Clear() {
  for (size_t k = 0; k < classes_.size(); ++k) {
    Hold(static_cast<int32_t>(k), 0);
  }
}

bool ShardPlaces::has_place(ChunkId chunk) const {
  const std::vector<ChunkId>& holds = ClassOf(chunk).holds;
  return std::any_of(holds.begin(), holds.end(),
                     [](ChunkId held) { return !held.valid(); });
}

ShardPlaces::Place ShardPlaces::Take(ChunkId chunk) {
  CASTOR_CHECK(!has(chunk));
  ClassPlaces& places = ClassOf(chunk);
  const auto free = std::find_if(places.holds.begin(), places.holds.end(),
                                 [](ChunkId held) { return !held.valid(); });
  CASTOR_CHECK(free != places.holds.end());
  const auto place = static_cast<size_t>(free - places.holds.begin());
  *free = chunk;
  copies_[chunk.index()].place = static_cast<int32_t>(place);
  return {DataOf(places, place),
          std::exchange(places.free_after[place], Event())};
}

std::byte* ShardPlaces::data(ChunkId chunk) const {
  CASTOR_CHECK(has(chunk));
  return DataOf(ClassOf(chunk),
                static_cast<size_t>(copies_[chunk.index()].place));
}

std::byte* ShardPlaces::DataOf(const ClassPlaces& places, size_t place) {
  const auto per_slot = static_cast<size_t>(places.per_slot);
  const Slot& slot = places.slots[place / per_slot];
  const Bytes size = RoundDown(slot.size / places.per_slot, kShardAlign);
  return slot.data + size.count() * static_cast<int64_t>(place % per_slot);
}

void ShardPlaces::SetReady(ChunkId chunk, Event ready) {
  Copy& copy = copies_[chunk.index()];
  copy.ready = ready;
  copy.busy = std::move(ready);
}

void ShardPlaces::AddReader(ChunkId chunk, Event reader) {
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

}  // namespace castor
