// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Other budgets between steps. All memory is made anew, states go from the old
// places to the new ones, shard by shard, and the old ones go. The layout
// stays, so the bits do too.
//
// No tier holds old and new memory at once. New memory of the host is address
// space until a shard comes, and the old pages of each shard go behind it. So
// does the space of files on a drive that has no room for both. A device that
// was given is left before its memory is made anew, as Park does.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/text/units_text.h"
#include "collectives/engine/zero_engine_impl.h"
#include "collectives/memory/held_moments.h"
#include "collectives/world/value_hash.h"
#include "placement/trace/step_trace.h"

namespace castor {

// All that lies in budgets, or refers to what does. Destroyed in reverse.
struct ZeroEngine::Impl::Memory {
  MemoryPlan plan;
  std::unique_ptr<RankPools> pools;
  LeaseArena leases;
  Slot lease_slot;
  Slot norm_slot;
  Slab norm_words;
  std::unique_ptr<ShardStore> store;
  std::vector<LoadTicket> ahead;
  std::vector<int32_t> held_in_place;
  std::unique_ptr<MemoryManager> manager;
  std::vector<ChunkGrad> grads;
  std::unique_ptr<Lane> device_lane;
};

void ZeroEngine::Impl::ExchangeMemory(Memory& other) {
  lease_copies_.reset();
  std::swap(memory_, other.plan);
  std::swap(pools_, other.pools);
  std::swap(leases_, other.leases);
  std::swap(lease_slot_, other.lease_slot);
  std::swap(norm_slot_, other.norm_slot);
  std::swap(norm_words_, other.norm_words);
  std::swap(store_, other.store);
  std::swap(ahead_, other.ahead);
  std::swap(held_in_place_, other.held_in_place);
  std::swap(manager_, other.manager);
  std::swap(grads_, other.grads);
  std::swap(device_lane_, other.device_lane);
}

Status ZeroEngine::Impl::Reseal(const ResealOptions& asked) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_RETURN_IF_ERROR(RequireBetweenSteps("Reseal()"));
  CASTOR_RETURN_IF_ERROR(EndSave());
  const Bytes device_before = options_.device_budget;
  const Bytes host_before = options_.host_budget;
  const SealBudgets least_before = least_;
  options_.device_budget = asked.device_budget.value_or(device_before);
  options_.host_budget = asked.host_budget.value_or(host_before);
  // A rank may have leases that others have not.
  Status status = RequireNoLeases("Reseal()");
  if (status.ok()) status = CheckMicroBatches(asked.declared);
  if (status.ok()) status = CheckStep(asked.declared);
  status = AgreeOn(status, 0, "what to reseal with");
  SealOptions declared = asked.declared;
  if (status.ok()) status = DeclareLastStep(&declared);
  if (status.ok()) status = AgreeOnInputs(declared);
  std::optional<StepTrace> last;
  if (manager_->plan() != nullptr) last = manager_->last_step();
  Memory other;
  if (status.ok()) {
    manager_->DropAll(RunCause::kNone);
    status = DrainAll();
    if (!status.ok()) return Fail(status);
    std::string why;
    if (Status left = LeaveDevice(&why); !left.ok()) return Fail(left);
    const Bytes returned = pools_->loosened_bytes();
    ExchangeMemory(other);
    Status built = BuildMemory(declared, {.loose = true, .returned = returned},
                               other.pools.get());
    if (built.ok()) built = BuildStore();
    if (built.ok() && declared.step) {
      built = manager_->Adopt(*declared.step);
    } else if (built.ok() && last) {
      // One that does not fit any more is served on demand.
      manager_->Adopt(*last).IgnoreError();
    }
    if (built.code() == ErrorCode::kUnavailable && !why.empty()) {
      built = built.WithContext(why);
    }
    status = AgreeOn(built, 0, "reseal");
    // Once all ranks have their files.
    if (status.ok()) status = AgreeOn(CheckDriveRoom(other), 0, "reseal");
    if (!status.ok()) {
      DropMemory();
      ExchangeMemory(other);
      if (!parked_) {
        manager_->BeginStep(static_cast<int32_t>(step_ + 1));
      } else if (Status back = Resume(); !back.ok()) {
        status = status.WithContext(fmt::format(
            "the engine stays parked, since its memory is not to be had again "
            "({})",
            back.message()));
      }
    }
  }
  if (!status.ok()) {
    options_.device_budget = device_before;
    options_.host_budget = host_before;
    least_ = least_before;
    return status;
  }
  headroom_ = HeadroomOfSums(declared);
  if (Status moved = TakeStates(other); !moved.ok()) return Fail(moved);
  ExchangeMemory(other);
  status = CloseMemory();
  DropMemory();
  ExchangeMemory(other);
  parked_ = false;
  parked_shards_.clear();
  vacated_.clear();
  // Lanes may be at the new memory by now: sums for the norm are zeroed there.
  if (status.ok()) status = DrainAll();
  if (!status.ok()) return Fail(status);
  // All states are there. What lacks space is what nobody has written yet.
  if (const Status settled = pools_->Settle(); !settled.ok()) {
    options_.log->Warning(settled.message());
  }
  DescribeHomes();
  store_->BeginStep(static_cast<int32_t>(step_ + 1));
  manager_->BeginStep(static_cast<int32_t>(step_ + 1));
  return Health();
}

// Ranks that keep whole parameters may have made different accesses.
Status ZeroEngine::Impl::DeclareLastStep(SealOptions* declared) {
  const Trace& trace = manager_->planned_trace();
  if (!declared->held.empty()) return OkStatus();
  std::vector<HeldTogether> held;
  if (manager_->plan() != nullptr) held = HeldMomentsOf(*layout_, trace);
  internal::ValueHash hash;
  for (const HeldTogether& moment : held) {
    for (const std::vector<ParamId>* ids : {&moment.params, &moment.grads}) {
      hash.Add(ids->size());
      for (const ParamId id : *ids) hash.Add(id.value());
    }
  }
  const int64_t own = hash.signed_value();
  std::array<int64_t, 2> least = {own, -own};
  CASTOR_RETURN_IF_ERROR(LeastOf(least, "what is held"));
  if (least[0] == -least[1]) declared->held = std::move(held);
  return OkStatus();
}

Status ZeroEngine::Impl::LeaveDevice(std::string* why) {
  if (options_.device == nullptr && !options_.make_device_slab) {
    return OkStatus();
  }
  Result<ParkResult> parked = Park(Tier::kHost);
  const bool more =
      !options_.nvme.empty() && (!parked.ok() || parked->remaining > Bytes(0));
  if (more) parked = Park(Tier::kNvme);
  if (parked.ok() && parked->remaining == Bytes(0)) return OkStatus();
  *why = fmt::format(
      "while {}", parked.ok() ? parked->shortfall : parked.status().message());
  // A park that is refused changes nothing, one that is cut short fails lanes.
  CASTOR_RETURN_IF_ERROR(Health());
  return parked_ ? Resume() : OkStatus();
}

Status ZeroEngine::Impl::CheckDriveRoom(const Memory& from) const {
  if (!pools_->nvme_as_written()) return OkStatus();
  Bytes now;
  Bytes most;
  // As TakeStates goes: gradients first, whose bytes mean nothing.
  for (const auto& [chunk, state] : from.store->shards()) {
    if (state != StateKind::kGrad) continue;
    now -= from.store->DriveBytes(chunk, state);
  }
  for (const auto& [chunk, state] : from.store->shards()) {
    if (state == StateKind::kGrad) continue;
    now += store_->DriveBytes(chunk, state);
    most = std::max(most, now);
    now -= from.store->DriveBytes(chunk, state);
  }
  // In the end all new space, and none of the old.
  most = std::max(most, pools_->nvme_bytes() - from.pools->nvme_bytes());
  // Other ranks may write to the same drive.
  const Bytes room = pools_->NvmeRoomBeside(*from.pools, comm_->world());
  if (most <= room) return OkStatus();
  return Unavailable(fmt::format(
      "states that move on the NVMe tier need {} beside what is there, and {} "
      "are left there for each of {} ranks: free some space on the drive, "
      "raise "
      "its limit, or keep the budgets",
      FormatBytes(most), FormatBytes(room), comm_->world()));
}

Status ZeroEngine::Impl::TakeStates(Memory& from) {
  ShardStore& old = *from.store;
  std::vector<ShardStore::ShardId> shards = old.shards();
  const bool gives_space = pools_->nvme_as_written();
  // Between steps a gradient's bytes mean nothing.
  std::erase_if(shards, [&](const ShardStore::ShardId& id) {
    if (id.state != StateKind::kGrad) return false;
    if (gives_space) old.GiveSpaceNow(id.chunk, id.state);
    return true;
  });
  std::vector<std::span<const std::byte>> kept;
  for (const ShardStore::ShardId& id : shards) {
    kept.push_back(old.MemoryNow(id.chunk, id.state, /*written=*/false));
  }
  from.pools->Loosen(kept);
  pools_->PrepareTransfers();
  std::vector<std::byte> values;
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto [chunk, state] = shards[i];
    CASTOR_RETURN_IF_ERROR(comm_->Health());
    const Bytes size = old.bytes(chunk, state);
    CASTOR_CHECK(size == store_->bytes(chunk, state));
    const std::span<std::byte> to =
        store_->MemoryNow(chunk, state, /*written=*/true);
    if (!kept[i].empty() && !to.empty()) {
      Workers()->ParallelFor(
          size.count(), to.data(), [&](int64_t begin, int64_t end) {
            std::memcpy(to.data() + begin, kept[i].data() + begin,
                        static_cast<size_t>(end - begin));
          });
    } else if (!to.empty()) {
      CASTOR_RETURN_IF_ERROR(
          old.ReadNow(chunk, state, {Bytes(0), size}, to.data()));
    } else if (!kept[i].empty()) {
      CASTOR_RETURN_IF_ERROR(store_->WriteNow(chunk, state, kept[i].data()));
    } else {
      values.resize(static_cast<size_t>(size.count()));
      CASTOR_RETURN_IF_ERROR(
          old.ReadNow(chunk, state, {Bytes(0), size}, values.data()));
      CASTOR_RETURN_IF_ERROR(store_->WriteNow(chunk, state, values.data()));
    }
    from.pools->DropPages(kept[i]);
    if (gives_space) old.GiveSpaceNow(chunk, state);
  }
  return OkStatus();
}

}  // namespace castor
