// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/memory/engine_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "chunk/text/raises_text.h"
#include "chunk/text/units_text.h"
#include "collectives/sealing/seal_plan.h"
#include "offload/lanes/failure_log.h"
#include "offload/nvme/nvme_option.h"

namespace castor::internal {

std::optional<StepTrace> EngineMemory::last_step() const {
  if (manager_ == nullptr) return std::nullopt;
  return manager_->last_step();
}

void EngineMemory::BeginStep(int32_t step) {
  store_->BeginStep(step);
  manager_->BeginStep(step);
}

void EngineMemory::Tell(EngineStats* stats) const {
  for (Tier tier : kAllTiers) {
    const size_t t = TierIndex(tier);
    const PoolStats& now = pool(tier).stats();
    const Bytes more = tier == Tier::kHost ? planned_.widened() : Bytes(0);
    stats->tiers[t] = {now.budget - more, now.in_use - more, now.peak - more};
    stats->home_bytes[t] = plan().home_bytes[t];
    for (size_t k = 0; k < kStateKinds; ++k) {
      stats->state_bytes[k][t] = plan().placement.bytes[k][t];
    }
    for (Tier to : kAllTiers) {
      stats->moved[t][TierIndex(to)] = store_->moved()[t][TierIndex(to)];
    }
  }
  if (const NvmeStore* nvme = pools_->nvme(); nvme != nullptr) {
    stats->most_nvme_written = nvme->stats().most_written_in_a_step;
  }
  const MemoryManagerStats& gathered = manager_->stats();
  stats->gathers = gathered.gathers;
  stats->fetches = gathered.fetches;
  stats->prefetched_fetches = gathered.prefetched_fetches;
  stats->prefetched_gathers = gathered.prefetched_gathers;
  stats->cancelled_gathers = gathered.cancelled_gathers;
  stats->releases = gathered.releases;
  stats->divergences = gathered.divergences;
  stats->grown_slots = gathered.grown_slots;
  stats->extra_slots = gathered.extra_slots;
  stats->stalls_by_cause = manager_->stalls();
  for (const StallSum& sum : stats->stalls_by_cause) {
    stats->stalls += sum.count;
    stats->stall_ns += sum.ns;
  }
  stats->tier_allocations = pools_->allocations();
  for (int64_t slots : plan().problem.slots) stats->gathered_slots += slots;
}

// After the raise all states live on the device, and all parameters and
// gradients may be held at once.
Status EngineMemory::WithEnough(const Status& failed) const {
  if (failed.code() != ErrorCode::kInfeasible) return failed;
  // Nothing turns the room that is left over into slots.
  if (!grows_ && !model_->options.keep_copies) return failed;
  SealOptions all;
  all.grow = true;
  if (plan().lease_class >= 0) {
    all.largest_lease =
        plan()
            .device_classes[static_cast<size_t>(plan().lease_class)]
            .slot_bytes;
  }
  HeldTogether& moment = all.held.emplace_back();
  for (size_t p = 0; p < model_->params.size(); ++p) {
    moment.params.emplace_back(static_cast<int32_t>(p));
    if (model_->params[p].spec.trainable)
      moment.grads.push_back(moment.params.back());
  }
  ZeroOptions options = model_->options;
  options.keep_copies = false;
  SealBudgets budgets = model_->least;
  budgets.device = kUnlimited;
  const Result<MemoryPlan> enough =
      MemoryOf(*model_->layout, model_->sharding, options, budgets,
               model_->bindings, all);
  if (!enough.ok()) return failed;
  const Bytes more = SlotsBytes(enough->device_classes) + budgets.buffers -
                     model_->options.device_budget;
  if (more <= Bytes(0)) return failed;  // another rank has less
  return Status(failed.code(),
                fmt::format("{}; or raise the device budget by {}, which is "
                            "enough for any step",
                            failed.message(), FormatBytesUp(more)))
      .WithRaises({RaiseOf(Tier::kDevice, more)});
}

Status EngineMemory::Build(const SealOptions& declared,
                           const SlabComing& coming, const RankPools* before) {
  grows_ = declared.grow;
  const auto take = [&] {
    RankPoolsOptions asked = planned_.PoolsOptions();
    asked.coming = coming;
    asked.before = before;
    return RankPools::Create(std::move(asked));
  };
  CASTOR_RETURN_IF_ERROR(planned_.Make(declared, /*spare_places=*/true));
  planned_.Warn();
  Result<std::unique_ptr<RankPools>> made = take();
  if (made.status().code() == ErrorCode::kUnavailable &&
      plan().spare_bytes != std::array<Bytes, 3>()) {
    // The machine has less than the budgets say: homes may fit alone.
    CASTOR_RETURN_IF_ERROR(planned_.Make(declared, /*spare_places=*/false));
    made = take();
  }
  CASTOR_ASSIGN_OR_RETURN(pools_, std::move(made));
  device_lane_ =
      device().MakeLane(fmt::format("rank {} device", model_->comm->rank()),
                        health_->OnFailure());
  if (plan().norm_class >= 0) {
    // A page beside the budgets, as the rest of what ranks agree on.
    HostSlabOptions words;
    words.log = model_->options.log;
    CASTOR_ASSIGN_OR_RETURN(norm_words_,
                            device().MakeHostSlab(kNormBytes, words));
  }
  return TakeOwnSlots();
}

Status EngineMemory::BuildStore(ChunkSource* source,
                                std::vector<bool> grad_slots_kept) {
  const ZeroOptions& options = model_->options;
  ShardStoreOptions homes;
  homes.pools = pools_.get();
  homes.clock = options.clock;
  homes.recorder = options.recorder;
  if (options.dry) homes.traffic = options.dry->traffic;
  homes.on_failure = health_->OnFailure();
  homes.rank = model_->comm->rank();
  homes.names = model_->sharding.states;
  homes.staging_class = plan().staging_class;
  homes.staging_slots = plan().staging_slots;
  homes.fetch_slots = plan().fetch_slots;
  homes.work_slots = planned_.UpdateSlots();
  store_ = std::make_unique<ShardStore>(homes);
  for (size_t c = 0; c < plan().states.size(); ++c) {
    for (size_t k = 0; k < kStateKinds; ++k) {
      const StatePlace& place = plan().states[c][k];
      if (place.bytes == Bytes(0)) continue;
      const ChunkId chunk(static_cast<int32_t>(c));
      const StateKind state = static_cast<StateKind>(k);
      const DType dtype = model_->dtype(state, chunk);
      CASTOR_RETURN_IF_ERROR(
          store_->AddShard(chunk, state, place.home, place.slot_class,
                           place.bytes, BytesOf(plan().piece, dtype),
                           BytesOf(planned_.counted_piece(), dtype)));
    }
  }

  MemoryManagerOptions gathered;
  gathered.device = &pool(Tier::kDevice);
  gathered.problem = plan().problem;
  gathered.policy = options.policy;
  gathered.source = source;
  gathered.clock = options.clock;
  gathered.recorder = options.recorder;
  if (options.dry) {
    gathered.traffic = options.dry->traffic;
    gathered.planned = options.dry->planned;
    gathered.plan = options.dry->plan;
  }
  gathered.log = options.log;
  gathered.rank = model_->comm->rank();
  gathered.grad_slots_kept = std::move(grad_slots_kept);
  gathered.own_lease_ends = options.own_lease_ends;
  gathered.grow_slots = grows_;
  gathered.add_slot = [pools = pools_.get()](int32_t slot_class) {
    return pools->AddDeviceSlot(slot_class);
  };
  manager_ = std::make_unique<MemoryManager>(std::move(gathered));
  return OkStatus();
}

void EngineMemory::Drop() {
  manager_.reset();
  store_.reset();
  device_lane_.reset();
  norm_words_ = Slab();
  lease_slot_ = norm_slot_ = Slot();
  arena_ = LeaseArena();
  pools_.reset();
}

Status EngineMemory::Drain(const EngineLanes& lanes) const {
  for (Lane* lane : {lanes.comm.get(), lanes.reduce.get(), lanes.host.get(),
                     device_lane_.get()}) {
    CASTOR_RETURN_IF_ERROR(lane->Drain());
  }
  return store_->Drain();
}

Status EngineMemory::Close() {
  const FailureLog failures;
  const auto note = [&](const Status& status) {
    if (!status.ok()) failures.Add(status);
  };
  note(manager_->Close());
  manager_.reset();
  note(store_->Close());
  // Its lanes may have had times for the recorder.
  device().FinishTimes();
  store_.reset();
  GiveOwnSlotsBack();
  // What the trainer gave back may still be used by work on its lanes, which
  // ends before the memory goes.
  note(pools_->Close());
  return failures.Summary();
}

Status EngineMemory::TakeOwnSlots() {
  TierPool& slots = pool(Tier::kDevice);
  if (plan().lease_class >= 0 && !lease_slot_.valid()) {
    CASTOR_ASSIGN_OR_RETURN(lease_slot_,
                            slots.Take(plan().lease_class, SlotHold::kSettled));
    arena_ = LeaseArena(lease_slot_.data, lease_slot_.size);
  }
  if (plan().norm_class >= 0 && !norm_slot_.valid()) {
    CASTOR_ASSIGN_OR_RETURN(norm_slot_,
                            slots.Take(plan().norm_class, SlotHold::kSettled));
    device_lane_->Wait(norm_slot_.free_after);
    device().Zero(*device_lane_, norm_slot_.data, norm_slot_.size);
  }
  return OkStatus();
}

void EngineMemory::GiveOwnSlotsBack() {
  TierPool& slots = pool(Tier::kDevice);
  if (lease_slot_.valid()) {
    Event free_after;
    if (arena_.leases() == 0) {
      // The whole arena is free once nobody uses what was lent of it.
      free_after = arena_.Borrow(lease_slot_.size)->free_after;
    }
    slots.Give(lease_slot_, std::move(free_after));
    lease_slot_ = Slot();
    arena_ = LeaseArena();
  }
  if (norm_slot_.valid()) {
    slots.Give(norm_slot_, Event());  // the device lane is drained
    norm_slot_ = Slot();
  }
}

std::vector<ShardRange> EngineMemory::WithinPieces(ChunkId chunk,
                                                   ShardRange range) const {
  if (plan().piece == Elements(0)) return {range};
  std::vector<Elements> cuts = {range.begin, range.end};
  for (int k = 0; k < kStateKinds; ++k) {
    const StateKind state = static_cast<StateKind>(k);
    if (!store_->has(chunk, state)) continue;
    const ShardRange kept = model_->kept(state, chunk);
    for (Elements cut = kept.begin + plan().piece; cut < range.end;
         cut += plan().piece) {
      if (cut > range.begin) cuts.push_back(cut);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<ShardRange> parts;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    parts.push_back({cuts[i], cuts[i + 1]});
  }
  return parts;
}

}  // namespace castor::internal
