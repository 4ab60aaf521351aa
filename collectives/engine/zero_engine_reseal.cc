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
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/text/units_text.h"
#include "collectives/engine/engine_sealing.h"
#include "collectives/engine/rank_words.h"
#include "collectives/engine/zero_engine_parts.h"
#include "placement/trace/step_trace.h"

namespace castor {

using internal::EngineMemory;

// Of one call. `other_` is the old memory, once it is exchanged.
class ZeroEngine::Parts::Resealing {
 public:
  Resealing(Parts& parts, const ResealOptions& asked)
      : parts_(parts),
        asked_(asked),
        declared_(asked.declared),
        sealing_(parts.base),
        words_(parts.base),
        other_(parts.base.model, parts.base.health),
        device_before_(model_.options.device_budget),
        host_before_(model_.options.host_budget),
        least_before_(model_.least),
        sharding_before_(model_.sharding),
        rules_before_(parts.late.rules()) {}

  Status Run();

 private:
  // All that is refused before anything changes.
  Status Agree();
  Status Rebuild();
  // The old memory again, after a failure.
  Status GoBack(Status status);
  // The bytes on a device that was given go to other tiers, if the tiers have
  // room for all: then the device's memory is free. Else nothing moves, and
  // `why_` says what is short.
  Status LeaveDevice();
  // Whether the drive has room for what moves, shard by shard, where old and
  // new files have none beside each other.
  Status CheckDriveRoom();
  // Takes the states that the other memory has, shard by shard, and gives the
  // pages of each back behind it.
  Status TakeStates();
  void Exchange() {
    parts_.leases.DropCopies();
    std::swap(memory_, other_);
  }

  Parts& parts_;
  const ResealOptions& asked_;
  SealOptions declared_;
  internal::EngineModel& model_ = parts_.base.model;
  EngineMemory& memory_ = parts_.base.memory;
  internal::EngineHealth& health_ = parts_.base.health;
  internal::EngineSealing sealing_;
  const internal::RankWords words_;
  EngineMemory other_;
  const Bytes device_before_;
  const Bytes host_before_;
  const SealBudgets least_before_;
  const Sharding sharding_before_;
  const internal::LateGradients::Rules rules_before_;
  std::optional<StepTrace> last_;  // step, where one was planned
  std::string why_;
};

Status ZeroEngine::Reseal(const ResealOptions& asked) {
  const internal::CallRules& rules = parts_->base.rules;
  CASTOR_RETURN_IF_ERROR(parts_->Told(rules.RequireSealed()));
  CASTOR_RETURN_IF_ERROR(rules.RequireBetweenSteps("Reseal()"));
  CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->checkpoints.EndSave()));
  return parts_->Told(Parts::Resealing(*parts_, asked).Run());
}

Status ZeroEngine::Parts::Resealing::Run() {
  if (memory_.planned()) last_ = memory_.last_step();
  Status status = Agree();
  if (status.ok()) {
    memory_.DropCopies();
    status = memory_.Drain(parts_.base.lanes);
    if (status.ok()) status = LeaveDevice();
    if (!status.ok()) return health_.Fail(status);
    status = Rebuild();
    if (!status.ok()) status = GoBack(status);
  }
  if (!status.ok()) {
    model_.options.device_budget = device_before_;
    model_.options.host_budget = host_before_;
    model_.least = least_before_;
    model_.sharding = sharding_before_;
    return status;
  }
  sealing_.SetHeadroom(declared_);
  status = TakeStates();
  if (!status.ok()) return health_.Fail(status);
  Exchange();
  status = memory_.Close();
  memory_.Drop();
  Exchange();
  parts_.offloader.Forget();
  // Lanes may be at the new memory by now: sums for the norm are zeroed there.
  if (status.ok()) status = memory_.Drain(parts_.base.lanes);
  if (!status.ok()) return health_.Fail(status);
  // All states are there. What lacks space is what nobody has written yet.
  if (const Status settled = memory_.pools().Settle(); !settled.ok()) {
    model_.options.log->Warning(settled.message());
  }
  parts_.base.record.DescribeHomes();
  memory_.BeginStep(parts_.base.progress.number());
  return health_.status();
}

Status ZeroEngine::Parts::Resealing::Agree() {
  model_.options.device_budget = asked_.device_budget.value_or(device_before_);
  model_.options.host_budget = asked_.host_budget.value_or(host_before_);
  // A rank may have leases that others have not.
  Status status = parts_.base.rules.RequireNoLeases("Reseal()");
  if (status.ok()) status = sealing_.CheckMicroBatches(declared_);
  if (status.ok()) status = sealing_.CheckStep(declared_);
  CASTOR_RETURN_IF_ERROR(words_.AgreeOn(status, 0, "what to reseal with"));
  CASTOR_RETURN_IF_ERROR(sealing_.DeclareLastStep(last_, &declared_));
  return sealing_.AgreeOnInputs(declared_);
}

Status ZeroEngine::Parts::Resealing::Rebuild() {
  const Bytes returned = memory_.pools().loosened_bytes();
  Exchange();
  Status built = parts_.BuildMemory(
      declared_, {.loose = true, .returned = returned}, &other_.pools());
  if (built.ok() && declared_.step) {
    built = memory_.Adopt(*declared_.step);
  } else if (built.ok() && last_) {
    // One that does not fit any more is served on demand.
    memory_.Adopt(*last_).IgnoreError();
  }
  if (built.code() == ErrorCode::kUnavailable && !why_.empty()) {
    built = built.WithContext(why_);
  }
  CASTOR_RETURN_IF_ERROR(words_.AgreeOn(built, 0, "reseal"));
  // Once all ranks have their files.
  return words_.AgreeOn(CheckDriveRoom(), 0, "reseal");
}

Status ZeroEngine::Parts::Resealing::GoBack(Status status) {
  memory_.Drop();
  Exchange();
  parts_.late.GoBackTo(rules_before_);
  if (!parts_.base.progress.parked) {
    memory_.RestoreCopies(parts_.base.progress.number());
  } else if (Status back = parts_.offloader.Resume(); !back.ok()) {
    return status.WithContext(fmt::format(
        "the engine stays parked, since its memory is not to be had again ({})",
        back.message()));
  }
  return status;
}

Status ZeroEngine::Parts::Resealing::LeaveDevice() {
  if (model_.options.device == nullptr && !model_.options.make_device_slab) {
    return OkStatus();
  }
  Result<ParkResult> parked = parts_.offloader.Park(Tier::kHost);
  const bool more = !model_.options.nvme.empty() &&
                    (!parked.ok() || parked->remaining > Bytes(0));
  if (more) parked = parts_.offloader.Park(Tier::kNvme);
  if (parked.ok() && parked->remaining == Bytes(0)) return OkStatus();
  why_ = fmt::format(
      "while {}", parked.ok() ? parked->shortfall : parked.status().message());
  // A park that is refused changes nothing, one that is cut short fails lanes.
  CASTOR_RETURN_IF_ERROR(health_.status());
  return parts_.base.progress.parked ? parts_.offloader.Resume() : OkStatus();
}

Status ZeroEngine::Parts::Resealing::CheckDriveRoom() {
  if (!memory_.pools().nvme_as_written()) return OkStatus();
  Bytes now;
  Bytes most;
  // As TakeStates goes: gradients first, whose bytes mean nothing.
  for (const auto& [chunk, state] : other_.store().shards()) {
    if (state != StateKind::kGrad) continue;
    now -= other_.store().DriveBytes(chunk, state);
  }
  for (const auto& [chunk, state] : other_.store().shards()) {
    if (state == StateKind::kGrad) continue;
    now += memory_.store().DriveBytes(chunk, state);
    most = std::max(most, now);
    now -= other_.store().DriveBytes(chunk, state);
  }
  // In the end all new space, and none of the old.
  most = std::max(most,
                  memory_.pools().nvme_bytes() - other_.pools().nvme_bytes());
  // Other ranks may write to the same drive.
  const Bytes room =
      memory_.pools().NvmeRoomBeside(other_.pools(), model_.comm->world());
  if (most <= room) return OkStatus();
  return Unavailable(fmt::format(
      "states that move on the NVMe tier need {} beside what is there, and {} "
      "are left there for each of {} ranks: free some space on the drive, "
      "raise "
      "its limit, or keep the budgets",
      FormatBytes(most), FormatBytes(room), model_.comm->world()));
}

Status ZeroEngine::Parts::Resealing::TakeStates() {
  ShardStore& old = other_.store();
  std::vector<ShardStore::ShardId> shards = old.shards();
  const bool gives_space = memory_.pools().nvme_as_written();
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
  other_.pools().Loosen(kept);
  memory_.pools().PrepareTransfers();
  std::vector<std::byte> values;
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto [chunk, state] = shards[i];
    CASTOR_RETURN_IF_ERROR(model_.comm->Health());
    const Bytes size = old.bytes(chunk, state);
    CASTOR_CHECK(size == memory_.store().bytes(chunk, state));
    const std::span<std::byte> to =
        memory_.store().MemoryNow(chunk, state, /*written=*/true);
    if (!kept[i].empty() && !to.empty()) {
      model_.workers().ParallelFor(
          size.count(), to.data(), [&](int64_t begin, int64_t end) {
            std::memcpy(to.data() + begin, kept[i].data() + begin,
                        static_cast<size_t>(end - begin));
          });
    } else if (!to.empty()) {
      CASTOR_RETURN_IF_ERROR(
          old.ReadNow(chunk, state, {Bytes(0), size}, to.data()));
    } else if (!kept[i].empty()) {
      CASTOR_RETURN_IF_ERROR(
          memory_.store().WriteNow(chunk, state, kept[i].data()));
    } else {
      values.resize(static_cast<size_t>(size.count()));
      CASTOR_RETURN_IF_ERROR(
          old.ReadNow(chunk, state, {Bytes(0), size}, values.data()));
      CASTOR_RETURN_IF_ERROR(
          memory_.store().WriteNow(chunk, state, values.data()));
    }
    other_.pools().DropPages(kept[i]);
    if (gives_space) old.GiveSpaceNow(chunk, state);
  }
  return OkStatus();
}

}  // namespace castor
