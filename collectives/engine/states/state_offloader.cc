// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/states/state_offloader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "chunk/text/budget_text.h"
#include "chunk/text/units_text.h"

namespace castor::internal {
namespace {

// Of slots in host memory and on NVMe.
constexpr Bytes kBlock = KiB(4);
// One on its way in while another is on its way out.
constexpr int64_t kParkStaging = 2;

}  // namespace

StateOffloader::ParkPlan StateOffloader::Plan(Tier to) const {
  ParkPlan plan;
  std::vector<ShardStore::ShardId> on_device;
  for (const ShardStore::ShardId& id : memory_.store().shards()) {
    // Between steps a gradient's bytes mean nothing.
    if (id.state == StateKind::kGrad) continue;
    if (memory_.store().home(id.chunk, id.state) == Tier::kDevice) {
      on_device.push_back(id);
    }
  }
  const auto size = [&](const ShardStore::ShardId& id) {
    return memory_.store().bytes(id.chunk, id.state);
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
    const PoolStats& pool = memory_.pool(tier).stats();
    return pool.budget - pool.reserved;
  };
  Bytes piece;  // the largest that moves at once
  for (const ShardStore::ShardId& id : on_device) {
    piece = std::max(
        piece, RoundUp(memory_.store().piece(id.chunk, id.state), kBlock));
  }
  // Without NVMe before, there may be no staging for the way to it.
  if (to == Tier::kNvme && memory_.store().staging().slot_bytes() < piece) {
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
    plan.moves.push_back({id, memory_.store().slot_class(id.chunk, id.state)});
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

Status StateOffloader::MakeRoom(Tier to, const ParkPlan& plan) {
  CASTOR_RETURN_IF_ERROR(memory_.pools().Extend(to, plan.classes));
  if (plan.staging_slots == 0) return OkStatus();
  const SlotClass staging{plan.staging_bytes, plan.staging_slots};
  if (Status made = memory_.pools().Extend(Tier::kHost, {&staging, 1});
      !made.ok()) {
    if (!progress_.parked) memory_.pools().Retract(to).IgnoreError();
    return made;
  }
  memory_.store().GrowStaging(memory_.pool(Tier::kHost).classes() - 1,
                              plan.staging_slots);
  return OkStatus();
}

Result<ParkResult> StateOffloader::Park(Tier to) {
  const ParkPlan plan = Plan(to);
  // Before anything changes: it may be refused.
  CASTOR_RETURN_IF_ERROR(MakeRoom(to, plan));
  if (!progress_.parked) {
    memory_.DropCopies();
    for (const ShardStore::ShardId& id : memory_.store().shards()) {
      if (id.state == StateKind::kGrad &&
          memory_.store().home(id.chunk, id.state) == Tier::kDevice) {
        memory_.store().Vacate(id.chunk, id.state);
        vacated_.push_back(id);
      }
    }
    progress_.parked = true;
  }
  for (const ParkedShard& shard : plan.moves) {
    CASTOR_RETURN_IF_ERROR(
        memory_.store()
            .Move(shard.id.chunk, shard.id.state, to, RunCause::kNone)
            .status());
    parked_.push_back(shard);
  }
  CASTOR_RETURN_IF_ERROR(memory_.Drain(lanes_));
  ParkResult result;
  result.moved = plan.moved;
  result.remaining = plan.remaining;
  if (plan.remaining == Bytes(0)) {
    memory_.GiveOwnSlotsBack();
    CASTOR_RETURN_IF_ERROR(memory_.pools().ReleaseDevice());
  } else {
    result.shortfall = Shortfall(to, plan);
  }
  result.held = memory_.pools().device_bytes();
  return result;
}

std::string StateOffloader::Shortfall(Tier to, const ParkPlan& plan) const {
  const bool staging =
      to == Tier::kNvme &&
      memory_.pool(to).stats().budget - memory_.pool(to).stats().reserved >=
          plan.remaining;
  return fmt::format(
      "{} of states remain on the device, and with them the {} allocated "
      "there: {}; raise {} by {}, or park the rest on another tier",
      FormatBytes(plan.remaining), FormatBytes(memory_.pools().device_bytes()),
      staging
          ? "the way to NVMe leads through host memory, whose budget has "
            "no room"
          : fmt::format("{} has no more room in its budget of {}", TierName(to),
                        BudgetText(memory_.pool(to).stats().budget)),
      staging || to == Tier::kHost ? "the host budget" : "the NVMe size",
      FormatBytesUp(plan.short_of));
}

void StateOffloader::Forget() {
  progress_.parked = false;
  parked_.clear();
  vacated_.clear();
}

Status StateOffloader::Resume() {
  if (!progress_.parked) {
    return FailedPrecondition("the engine is not parked: call Park() first");
  }
  CASTOR_RETURN_IF_ERROR(memory_.pools().RestoreDevice());
  CASTOR_RETURN_IF_ERROR(memory_.TakeOwnSlots());
  for (const ParkedShard& shard : parked_) {
    CASTOR_RETURN_IF_ERROR(memory_.store()
                               .Move(shard.id.chunk, shard.id.state,
                                     Tier::kDevice, RunCause::kNone,
                                     shard.device_class)
                               .status());
  }
  CASTOR_RETURN_IF_ERROR(memory_.Drain(lanes_));
  for (const ShardStore::ShardId& id : vacated_) {
    CASTOR_RETURN_IF_ERROR(memory_.store().Reoccupy(id.chunk, id.state));
  }
  memory_.store().ShrinkStaging();
  CASTOR_RETURN_IF_ERROR(memory_.pools().Retract(Tier::kNvme));
  CASTOR_RETURN_IF_ERROR(memory_.pools().Retract(Tier::kHost));
  Forget();
  memory_.RestoreCopies(progress_.number());
  return health_.status();
}

}  // namespace castor::internal
