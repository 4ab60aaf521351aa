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
  if (problem->lent_class == kNoSlotClass) return;
  const auto chunks =
      std::count(problem->param_class.begin(), problem->param_class.end(),
                 problem->lent_class);
  lent_holds_.resize(static_cast<size_t>(
      std::min<int64_t>(problem->lent_arena / problem->lent_place, chunks)));
  lent_free_after_.resize(lent_holds_.size());
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

void ShardPlaces::Lend(int64_t places) {
  lent_ = std::min(places, std::ssize(lent_holds_));
}

ChunkId ShardPlaces::Beyond() {
  for (int64_t place = lent_; place < lent_end_; ++place) {
    const ChunkId held = lent_holds_[static_cast<size_t>(place)];
    if (held.valid()) return held;
  }
  lent_end_ = std::min(lent_end_, lent_);
  return {};
}

SimEvent ShardPlaces::FreeAfter(int64_t begin, int64_t end) const {
  const int64_t all = std::ssize(lent_free_after_);
  const auto places = std::span(lent_free_after_)
                          .subspan(static_cast<size_t>(std::min(begin, all)),
                                   static_cast<size_t>(std::min(end, all) -
                                                       std::min(begin, all)));
  return AllOf(places);
}

void ShardPlaces::Return(int64_t begin, int64_t end, const SimEvent& returned) {
  const int64_t all = std::ssize(lent_free_after_);
  for (int64_t place = begin; place < std::min(end, all); ++place) {
    lent_free_after_[static_cast<size_t>(place)] = returned;
  }
}

int32_t ShardPlaces::FreePlace(ChunkId chunk) const {
  const int32_t slot_class = problem_->param_class[chunk.index()];
  const std::vector<ChunkId>& holds =
      classes_[static_cast<size_t>(slot_class)].holds;
  const auto free = std::find(holds.begin(), holds.end(), ChunkId());
  if (free != holds.end()) return static_cast<int32_t>(free - holds.begin());
  if (slot_class != problem_->lent_class) return kNowhere;
  const auto end = lent_holds_.begin() + lent_;
  const auto lent = std::find(lent_holds_.begin(), end, ChunkId());
  return lent == end
             ? kNowhere
             : kFirstLent + static_cast<int32_t>(lent - lent_holds_.begin());
}

ShardPlaces::PlaceRef ShardPlaces::At(ChunkId chunk, int32_t place) {
  if (place >= kFirstLent) {
    const auto lent = static_cast<size_t>(place - kFirstLent);
    return {lent_holds_[lent], lent_free_after_[lent]};
  }
  ClassPlaces& places = ClassOf(chunk);
  const auto at = static_cast<size_t>(place);
  return {places.holds[at], places.free_after[at]};
}

SimEvent ShardPlaces::Take(ChunkId chunk) {
  CASTOR_CHECK(!has(chunk));
  return Occupy(chunk, FreePlace(chunk));
}

SimEvent ShardPlaces::Move(ChunkId chunk) {
  CASTOR_CHECK(has(chunk));
  Copy& copy = copies_[chunk.index()];
  copy.left = copy.place;
  return Occupy(chunk, FreePlace(chunk));
}

void ShardPlaces::SetMoved(ChunkId chunk, SimEvent moved) {
  Copy& copy = copies_[chunk.index()];
  const SimEvent users[] = {std::move(copy.busy), moved};
  Vacate(chunk, std::exchange(copy.left, kNowhere), AllOf(users));
  SetReady(chunk, std::move(moved));
}

SimEvent ShardPlaces::Occupy(ChunkId chunk, int32_t place) {
  CASTOR_CHECK(place != kNowhere);
  copies_[chunk.index()].place = place;
  const PlaceRef at = At(chunk, place);
  at.holds = chunk;
  if (place >= kFirstLent) {
    lent_end_ = std::max<int64_t>(lent_end_, place - kFirstLent + 1);
  }
  return std::exchange(at.free_after, SimEvent());
}

void ShardPlaces::Vacate(ChunkId chunk, int32_t place, SimEvent free_after) {
  const PlaceRef at = At(chunk, place);
  at.holds = ChunkId();
  at.free_after = std::move(free_after);
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
  Copy& copy = copies_[chunk.index()];
  Vacate(chunk, copy.place, std::move(copy.busy));
  copy = Copy();
}

}  // namespace castor::internal
