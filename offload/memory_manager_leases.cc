// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a MemoryManager knows of the trainer's leases, and what it lends of the
// room that they leave.

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "offload/memory_manager.h"
#include "placement/step_planner.h"

namespace castor {

void MemoryManager::SetLeased(Bytes bytes, Bytes reach) {
  leased_ = {bytes, reach};
  const PlanProblem& problem = options_.problem;
  if (problem.lent_class != kNoSlotClass) {
    places_left_ =
        std::max(problem.lent_arena - reach, Bytes(0)) / problem.lent_place;
    Lend(shards_.lent());
  }
  if (evaluating()) return;
  if (trace_.empty()) {
    leased_before_.Raise(leased_);
    return;
  }
  LeaseLevel most = NotedLeased();
  most.Raise(leased_);
  if (most != NotedLeased()) NoteLeased(trace_.size() - 1, most);
}

void MemoryManager::NoteLeased(size_t moment, const LeaseLevel& level) {
  if (!leases_.empty() &&
      static_cast<size_t>(leases_.back().moment) == moment) {
    leases_.pop_back();
  }
  if (level != NotedLeased()) {
    leases_.push_back(
        {static_cast<int32_t>(moment), level.bytes, level.reach - level.bytes});
  }
}

void MemoryManager::MakeWay(Bytes reach) {
  SetLeased(leased_.bytes, std::max(leased_.reach, reach));
}

void MemoryManager::Lend(int64_t places) {
  shards_.Lend(std::min(places, places_left_));
  for (ChunkId chunk = shards_.Beyond(); chunk.valid();
       chunk = shards_.Beyond()) {
    if (!shards_.has_place(chunk)) {
      shards_.Drop(chunk);
      continue;
    }
    const std::byte* const from = shards_.data(chunk);
    const ShardPlaces::Place to = shards_.Move(chunk);
    shards_.SetMoved(
        chunk, options_.source->MoveShard(chunk, from, to.data,
                                          shards_.ready(chunk), to.free_after));
  }
}

void MemoryManager::LendDuring(size_t moment) {
  const PlanProblem& problem = options_.problem;
  if (problem.lent_places.empty()) return;
  Lend(problem.LentDuring(static_cast<size_t>(problem.lent_class), moment));
}

void MemoryManager::LendAfter(size_t moment) {
  const PlanProblem& problem = options_.problem;
  if (problem.lent_places.empty()) return;
  Lend(problem.LentAfter(static_cast<size_t>(problem.lent_class), moment));
}

void MemoryManager::CompareLeases() {
  const auto departure = lease_departures_.After(leases_);
  leases_departed_ = departure != LeaseDepartures::Departure::kNone;
  if (departure != LeaseDepartures::Departure::kFewer) return;
  ++stats_.divergences;
  RecordInstant(RunEventKind::kDivergence, ChunkId(), RunCause::kNone);
}

bool MemoryManager::lends() const {
  return options_.policy == PlanPolicy::kPlanned &&
         options_.problem.lent_class != kNoSlotClass;
}

Status MemoryManager::PlanLent() {
  CASTOR_CHECK_GT(lendable_moments(), 0);
  std::vector<int64_t> own = lease_departures_.own();
  if (own.empty()) {
    own = LentPlacesOf(options_.policy, last_step(), options_.problem);
  }
  std::vector<int64_t> lent = own;
  CASTOR_RETURN_IF_ERROR(options_.source->AgreeOnPlaces(lent));
  lease_departures_.Adopt(lent, std::move(own), planned_anew_);
  options_.problem.lent_places = std::move(lent);
  planned_ = false;
  return MakePlan();
}

}  // namespace castor
