// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/shard_places.h"

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

ShardPlaces::ShardPlaces(TierPool* device, const PlanProblem* problem,
                         LeaseArena* leases)
    : device_(device),
      problem_(problem),
      leases_(leases),
      copies_(problem->param_class.size()),
      classes_(problem->slots.size()) {
  for (size_t k = 0; k < classes_.size(); ++k) {
    classes_[k].per_slot = problem->ShardsPerSlot(k);
  }
  if (leases == nullptr || problem->lent_class == kNoSlotClass) return;
  // More than one for each chunk would never be used.
  const auto chunks =
      std::count(problem->param_class.begin(), problem->param_class.end(),
                 problem->lent_class);
  lent_holds_.resize(static_cast<size_t>(
      std::min<int64_t>(problem->lent_arena / problem->lent_place, chunks)));
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

void ShardPlaces::Lend(int64_t places) {
  lent_ = std::min(places, static_cast<int64_t>(lent_holds_.size()));
}

ChunkId ShardPlaces::Beyond() {
  for (int64_t place = lent_; place < lent_end_; ++place) {
    const ChunkId held = lent_holds_[static_cast<size_t>(place)];
    if (held.valid()) return held;
  }
  lent_end_ = std::min(lent_end_, lent_);
  return {};
}

void ShardPlaces::Clear() {
  for (size_t k = 0; k < classes_.size(); ++k) {
    Hold(static_cast<int32_t>(k), 0);
  }
  Lend(0);
  for (const ChunkId chunk : lent_holds_) {
    if (chunk.valid()) Drop(chunk);
  }
}

int32_t ShardPlaces::FreePlace(ChunkId chunk) const {
  const auto is_free = [](ChunkId held) { return !held.valid(); };
  const std::vector<ChunkId>& holds = ClassOf(chunk).holds;
  const auto free = std::find_if(holds.begin(), holds.end(), is_free);
  if (free != holds.end()) return static_cast<int32_t>(free - holds.begin());
  if (problem_->param_class[chunk.index()] != problem_->lent_class) {
    return kNowhere;
  }
  const auto end = lent_holds_.begin() + static_cast<std::ptrdiff_t>(lent_);
  const auto lent = std::find_if(lent_holds_.begin(), end, is_free);
  return lent == end
             ? kNowhere
             : kFirstLent + static_cast<int32_t>(lent - lent_holds_.begin());
}

ShardPlaces::Place ShardPlaces::Take(ChunkId chunk) {
  CASTOR_CHECK(!has(chunk));
  return Occupy(chunk, FreePlace(chunk));
}

ShardPlaces::Place ShardPlaces::Move(ChunkId chunk) {
  CASTOR_CHECK(has(chunk));
  Copy& copy = copies_[chunk.index()];
  copy.left = copy.place;
  return Occupy(chunk, FreePlace(chunk));
}

void ShardPlaces::SetMoved(ChunkId chunk, Event moved) {
  Copy& copy = copies_[chunk.index()];
  const Event users[] = {std::move(copy.busy), moved};
  Vacate(chunk, std::exchange(copy.left, kNowhere), AllOf(users));
  SetReady(chunk, std::move(moved));
}

ShardPlaces::Place ShardPlaces::Occupy(ChunkId chunk, int32_t place) {
  CASTOR_CHECK(place != kNowhere);
  copies_[chunk.index()].place = place;
  std::byte* const data = DataOf(chunk, place);
  if (IsLent(place)) {
    lent_holds_[static_cast<size_t>(place - kFirstLent)] = chunk;
    lent_end_ = std::max<int64_t>(lent_end_, place - kFirstLent + 1);
    const Bytes begin = BeginOf(place);
    return {data, leases_->Use(begin, begin + problem_->lent_place)};
  }
  ClassPlaces& places = ClassOf(chunk);
  places.holds[static_cast<size_t>(place)] = chunk;
  return {data, std::exchange(places.free_after[static_cast<size_t>(place)],
                              Event())};
}

void ShardPlaces::Vacate(ChunkId chunk, int32_t place, Event free_after) {
  if (IsLent(place)) {
    lent_holds_[static_cast<size_t>(place - kFirstLent)] = ChunkId();
    const Bytes begin = BeginOf(place);
    leases_->Leave(begin, begin + problem_->lent_place, std::move(free_after));
    return;
  }
  ClassPlaces& places = ClassOf(chunk);
  places.holds[static_cast<size_t>(place)] = ChunkId();
  places.free_after[static_cast<size_t>(place)] = std::move(free_after);
}

std::byte* ShardPlaces::data(ChunkId chunk) const {
  CASTOR_CHECK(has(chunk));
  return DataOf(chunk, copies_[chunk.index()].place);
}

std::byte* ShardPlaces::DataOf(ChunkId chunk, int32_t place) const {
  if (IsLent(place)) return leases_->data() + BeginOf(place).count();
  const ClassPlaces& places = ClassOf(chunk);
  const Slot& slot = places.slots[static_cast<size_t>(place / places.per_slot)];
  const Bytes size = RoundDown(slot.size / places.per_slot, kShardAlign);
  return slot.data + size.count() * (place % places.per_slot);
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
  Copy& copy = copies_[chunk.index()];
  Vacate(chunk, copy.place, std::move(copy.busy));
  copy = Copy();
}

}  // namespace castor
