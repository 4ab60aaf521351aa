// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/params/param_leases.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace castor {

ParamLease& ParamLease::operator=(ParamLease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  held_ = std::exchange(other.held_, nullptr);
  return *this;
}

void ParamLease::AlsoUsedOn(Lane& lane) {
  if (held_ == nullptr) return;
  for (ChunkPin& pin : held_->pins) pin.AlsoUsedOn(lane);
  if (held_->poison) held_->lanes.push_back(&lane);
}

void ParamLease::GiveBack() {
  Held* const held = std::exchange(held_, nullptr);
  held->lender->TakeBack(held);
}

namespace internal {

Result<ParamLease> ParamLeases::Acquire(std::span<const ParamId> params,
                                        Lane& lane) {
  acquired_.resize(model_.params.size());
  ParamLease lease;
  ParamLease::Held& held = *(lease.held_ = Spare());
  for (ParamId id : params) {
    CASTOR_CHECK(id.valid() && id.index() < model_.params.size());
    if (!acquired_[id.index()] && progress_.evaluating == 0) [[unlikely]] {
      acquired_[id.index()] = true;
      first_uses_.push_back(id);
    }
    if (model_.grads_in_place()) {
      CASTOR_RETURN_IF_ERROR(reducer_.overwritten().RequireNot(id));
      int32_t& count = progress_.params[id.index()].held;
      ++count;
      held.counts.push_back(&count);
    }
    const ChunkId chunk = model_.chunk_of(id);
    if (!chunk.valid()) {
      held.data.push_back(nullptr);
      continue;
    }
    CASTOR_ASSIGN_OR_RETURN(const ChunkPin* const pin, Pin(chunk, lane, held));
    held.data.push_back(pin->data() + model_.param(id).offset.count());
  }
  if (model_.options.poison) {
    CASTOR_RETURN_IF_ERROR(Copy(params, lane, held));
  }
  // On a lane that waits at once, a failed copy is known by now.
  CASTOR_RETURN_IF_ERROR(lane.status());
  return lease;
}

ParamLease::Held* ParamLeases::Spare() {
  if (spare_.empty()) {
    all_.push_back(std::make_unique<ParamLease::Held>());
    all_.back()->lender = this;
    spare_.reserve(all_.size());
    spare_.push_back(all_.back().get());
  }
  ParamLease::Held* const held = spare_.back();
  spare_.pop_back();
  return held;
}

Result<const ChunkPin*> ParamLeases::Pin(ChunkId chunk, Lane& lane,
                                         ParamLease::Held& held) {
  const auto pin =
      std::find_if(held.pins.begin(), held.pins.end(),
                   [&](const ChunkPin& p) { return p.chunk() == chunk; });
  if (pin != held.pins.end()) return &*pin;
  CASTOR_RETURN_IF_ERROR(optimizer_.early().RequireNotUpdated(chunk));
  late_.FollowPlan();
  Result<ChunkPin> made = memory_.manager().Acquire(chunk, lane);
  while (!made.ok() && late_.MakeRoom()) {
    made = memory_.manager().Acquire(chunk, lane);
  }
  if (!made.ok()) return memory_.WithEnough(made.status());
  held.pins.push_back(*std::move(made));
  return &held.pins.back();
}

std::vector<ParamId> ParamLeases::FirstUses() const {
  std::vector<ParamId> uses = first_uses_;
  for (size_t p = 0; p < model_.params.size(); ++p) {
    const bool acquired = p < acquired_.size() && acquired_[p];
    if (!acquired) uses.emplace_back(static_cast<int32_t>(p));
  }
  return uses;
}

Status ParamLeases::Copy(std::span<const ParamId> params, Lane& lane,
                         ParamLease::Held& held) {
  if (copies_ == nullptr) {
    copies_ = std::make_unique<LeaseCopies>(&memory_.pools());
  }
  std::vector<LeaseCopies::Copy*> copies;
  // Those that were made before one fails go back too.
  held.lanes.push_back(&lane);
  Status status;
  for (size_t i = 0; i < params.size() && status.ok(); ++i) {
    if (held.data[i] == nullptr) continue;
    const EngineParam& param = model_.param(params[i]);
    Result<LeaseCopies::Copy*> copy =
        copies_->Make(params[i], static_cast<const std::byte*>(held.data[i]),
                      BytesOf(param.size, param.spec.dtype), lane);
    status = copy.status();
    if (!status.ok()) break;
    held.data[i] = (*copy)->slab.data();
    copies.push_back(*copy);
  }
  held.poison = [copies = std::move(copies),
                 this](std::span<Lane* const> lanes) {
    for (LeaseCopies::Copy* const copy : copies) {
      copies_->TakeBack(copy, lanes);
    }
  };
  return status;
}

void ParamLeases::TakeBack(ParamLease::Held* held) {
  if (held->poison) [[unlikely]] {
    held->poison(held->lanes);
    held->poison = nullptr;
    held->lanes.clear();
  }
  for (ChunkPin& pin : held->pins) {
    // Ends that are the holders' own are no accesses of the plan.
    if (pin.traced() && !model_.options.own_lease_ends) {
      late_.FollowPlan();
    }
    pin.Release();
  }
  held->pins.clear();
  held->data.clear();
  for (int32_t* count : held->counts) --*count;
  held->counts.clear();
  spare_.push_back(held);
}

}  // namespace internal
}  // namespace castor
