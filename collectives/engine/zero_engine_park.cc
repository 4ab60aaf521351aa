// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How an engine leaves the device to others for a while, and comes back.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "chunk/text/budget_text.h"
#include "chunk/text/units_text.h"
#include "collectives/engine/zero_engine_impl.h"

namespace castor {
namespace {

// Of slots in host memory and on NVMe.
constexpr Bytes kBlock = KiB(4);
// One on its way in while another is on its way out.
constexpr int64_t kParkStaging = 2;

}  // namespace

ZeroEngine::Impl::ParkPlan ZeroEngine::Impl::PlanPark(Tier to) const {
  ParkPlan plan;
  std::vector<ShardStore::ShardId> on_device;
  for (const ShardStore::ShardId& id : store_->shards()) {
    // Between steps a gradient's bytes mean nothing.
    if (id.state == StateKind::kGrad) continue;
    if (store_->home(id.chunk, id.state) == Tier::kDevice) {
      on_device.push_back(id);
    }
  }
  const auto size = [&](const ShardStore::ShardId& id) {
    return store_->bytes(id.chunk, id.state);
  };
  std::sort(on_device.begin(), on_device.end(),
            [&](const ShardStore::ShardId& a, const ShardStore::ShardId& b) {
              const auto rank = [&](const ShardStore::ShardId& id) {
                return std::tuple(-size(id).count(), id.chunk.value(),
                                  static_cast<int>(id.state));
              };
              return rank(a) < rank(b);
            });
  const auto room_on = [&](Tier tier) {
    const PoolStats& pool = pools_->pool(tier).stats();
    return pool.budget - pool.reserved;
  };
  Bytes piece;  // the largest that moves at once
  for (const ShardStore::ShardId& id : on_device) {
    piece = std::max(piece, RoundUp(store_->piece(id.chunk, id.state), kBlock));
  }
  // Without NVMe before, there may be no staging for the way to it.
  if (to == Tier::kNvme && store_->staging().slot_bytes() < piece) {
    plan.staging_slots = kParkStaging;
    plan.staging_bytes = piece;
  }
  const bool reachable =
      plan.staging_bytes * plan.staging_slots <= room_on(Tier::kHost);
  Bytes room = reachable ? room_on(to) : Bytes(0);
  std::map<Bytes, int64_t> slots;
  for (const ShardStore::ShardId& id : on_device) {
    const Bytes slot = RoundUp(size(id), kBlock);
    if (slot > room) {
      plan.remaining += size(id);
      plan.short_of += slot;
      continue;
    }
    room -= slot;
    ++slots[slot];
    plan.moved += size(id);
    plan.moves.push_back({id, store_->slot_class(id.chunk, id.state)});
  }
  plan.short_of = std::max(plan.short_of - room, Bytes(0));
  if (!reachable) {
    plan.short_of =
        plan.staging_bytes * plan.staging_slots - room_on(Tier::kHost);
    plan.staging_slots = 0;
  }
  for (const auto& [bytes, count] : slots) {
    plan.classes.push_back({bytes, count});
  }
  return plan;
}

Status ZeroEngine::Impl::MakeRoom(Tier to, const ParkPlan& plan) {
  CASTOR_RETURN_IF_ERROR(pools_->Extend(to, plan.classes));
  if (plan.staging_slots == 0) return OkStatus();
  const SlotClass staging{plan.staging_bytes, plan.staging_slots};
  if (Status made = pools_->Extend(Tier::kHost, {&staging, 1}); !made.ok()) {
    if (!parked_) pools_->Retract(to).IgnoreError();
    return made;
  }
  store_->GrowStaging(pools_->pool(Tier::kHost).classes() - 1,
                      plan.staging_slots);
  return OkStatus();
}

Status ZeroEngine::Impl::DrainAll() {
  for (Lane* lane :
       {static_cast<Lane*>(comm_lane_.get()),
        static_cast<Lane*>(reduce_lane_.get()),
        static_cast<Lane*>(host_lane_.get()), device_lane_.get()}) {
    CASTOR_RETURN_IF_ERROR(lane->Drain());
  }
  return store_->Drain();
}

Result<ParkResult> ZeroEngine::Impl::Park(Tier to) {
  CASTOR_RETURN_IF_ERROR(RequireStates());
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen("Park()"));
  if (to == Tier::kDevice) {
    return InvalidArgument(
        "a device cannot be parked on itself: name host memory or NVMe");
  }
  if (micro_batches_ > 0) {
    return FailedPrecondition(
        "a step is half done: call Step() or Abandon() before Park()");
  }
  CASTOR_RETURN_IF_ERROR(RequireNoLeases("Park()"));
  CASTOR_RETURN_IF_ERROR(EndSave());
  const ParkPlan plan = PlanPark(to);
  // Before anything changes: it may be refused.
  CASTOR_RETURN_IF_ERROR(MakeRoom(to, plan));
  if (!parked_) {
    manager_->DropAll(RunCause::kNone);
    for (const ShardStore::ShardId& id : store_->shards()) {
      if (id.state == StateKind::kGrad &&
          store_->home(id.chunk, id.state) == Tier::kDevice) {
        store_->Vacate(id.chunk, id.state);
        vacated_.push_back(id);
      }
    }
    parked_ = true;
  }
  for (const ParkedShard& shard : plan.moves) {
    CASTOR_RETURN_IF_ERROR(
        store_->Move(shard.id.chunk, shard.id.state, to, RunCause::kNone)
            .status());
    parked_shards_.push_back(shard);
  }
  CASTOR_RETURN_IF_ERROR(DrainAll());
  ParkResult result;
  result.moved = plan.moved;
  result.remaining = plan.remaining;
  if (plan.remaining == Bytes(0)) {
    GiveOwnSlotsBack();
    CASTOR_RETURN_IF_ERROR(pools_->ReleaseDevice());
  } else {
    const bool staging =
        to == Tier::kNvme &&
        pools_->pool(to).stats().budget - pools_->pool(to).stats().reserved >=
            plan.remaining;
    result.shortfall = fmt::format(
        "{} of states remain on the device, and with them the {} allocated "
        "there: {}; raise {} by {}, or park the rest on another tier",
        FormatBytes(plan.remaining), FormatBytes(pools_->device_bytes()),
        staging ? "the way to NVMe leads through host memory, whose budget has "
                  "no room"
                : fmt::format("{} has no more room in its budget of {}",
                              TierName(to),
                              BudgetText(pools_->pool(to).stats().budget)),
        staging || to == Tier::kHost ? "the host budget" : "the NVMe size",
        FormatBytesUp(plan.short_of));
  }
  result.held = pools_->device_bytes();
  return result;
}

Status ZeroEngine::Impl::Resume() {
  CASTOR_RETURN_IF_ERROR(RequireStates());
  if (!parked_) {
    return FailedPrecondition("the engine is not parked: call Park() first");
  }
  CASTOR_RETURN_IF_ERROR(pools_->RestoreDevice());
  CASTOR_RETURN_IF_ERROR(TakeOwnSlots());
  for (const ParkedShard& shard : parked_shards_) {
    CASTOR_RETURN_IF_ERROR(store_
                               ->Move(shard.id.chunk, shard.id.state,
                                      Tier::kDevice, RunCause::kNone,
                                      shard.device_class)
                               .status());
  }
  CASTOR_RETURN_IF_ERROR(DrainAll());
  for (const ShardStore::ShardId& id : vacated_) {
    CASTOR_RETURN_IF_ERROR(store_->Reoccupy(id.chunk, id.state));
  }
  parked_shards_.clear();
  vacated_.clear();
  store_->ShrinkStaging();
  CASTOR_RETURN_IF_ERROR(pools_->Retract(Tier::kNvme));
  CASTOR_RETURN_IF_ERROR(pools_->Retract(Tier::kHost));
  parked_ = false;
  manager_->BeginStep(static_cast<int32_t>(step_ + 1));
  return Health();
}

}  // namespace castor
