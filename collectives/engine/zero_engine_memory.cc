// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "chunk/text/raises_text.h"
#include "chunk/text/units_text.h"
#include "collectives/engine/zero_engine_impl.h"
#include "collectives/sealing/seal_plan.h"
#include "offload/nvme/nvme_option.h"

namespace castor {

Result<MemoryPlan> ZeroEngine::Impl::PlanAllMemory(
    const SealOptions& declared) const {
  const auto made = [&](const ZeroOptions& options, Bytes device,
                        const SealOptions& held) {
    SealBudgets budgets = least_;
    budgets.device = device;
    return MemoryOf(*layout_, sharding_, options, budgets, bindings_, held);
  };
  const bool known = !declared.held.empty() && !declared.estimate;
  if (!declared.grow || known) {
    return made(options_, least_.device, declared);
  }
  ZeroOptions options = options_;
  options.prefetch.depth = 0;
  options.keep_copies = false;
  const SealOptions held = FirstStepOf(*layout_, Specs(), declared);
  // In little more than the least budget that serves it, which leaves the rest
  // to slots.
  Result<MemoryPlan> plan = made(options, least_.device, held);
  Bytes serves = least_.device;
  Bytes fails;
  while (plan.ok() && serves - fails > least_.device / 64) {
    const Bytes half = fails + (serves - fails) / 2;
    Result<MemoryPlan> in_half = made(options, half, held);
    (in_half.ok() ? serves : fails) = half;
    if (in_half.ok()) plan = std::move(in_half);
  }
  return plan;
}

Status ZeroEngine::Impl::WithEnough(const Status& failed) const {
  if (failed.code() != ErrorCode::kInfeasible) return failed;
  // Nothing turns the room that is left over into slots.
  if (!grows_ && !options_.keep_copies) return failed;
  SealOptions all;
  all.grow = true;
  if (memory_.lease_class >= 0) {
    all.largest_lease =
        memory_.device_classes[static_cast<size_t>(memory_.lease_class)]
            .slot_bytes;
  }
  HeldTogether& moment = all.held.emplace_back();
  for (size_t p = 0; p < params_.size(); ++p) {
    moment.params.emplace_back(static_cast<int32_t>(p));
    if (params_[p].spec.trainable) moment.grads.push_back(moment.params.back());
  }
  ZeroOptions options = options_;
  options.keep_copies = false;
  SealBudgets budgets = least_;
  budgets.device = kUnlimited;
  const Result<MemoryPlan> plan =
      MemoryOf(*layout_, sharding_, options, budgets, bindings_, all);
  if (!plan.ok()) return failed;
  const Bytes more = SlotsBytes(plan->device_classes) + budgets.buffers -
                     options_.device_budget;
  if (more <= Bytes(0)) return failed;  // another rank has less
  return Status(failed.code(),
                fmt::format("{}; or raise the device budget by {}, which is "
                            "enough for any step",
                            failed.message(), FormatBytesUp(more)))
      .WithRaises({RaiseOf(Tier::kDevice, more)});
}

Status ZeroEngine::Impl::BuildMemory(const SealOptions& declared,
                                     const SlabComing& coming,
                                     const RankPools* before) {
  grows_ = declared.grow;
  CASTOR_ASSIGN_OR_RETURN(memory_, PlanAllMemory(declared));
  if (options_.dry && options_.dry->instant) WidenStaging();
  if (!memory_.unknown_links.empty()) {
    options_.log->WarnOnce(
        "unknown links",
        fmt::format("the machine says nothing of {}, which fetches pass: they "
                    "are weighed by the links they cross, not by their time",
                    memory_.unknown_links));
  }
  const PlanProblem& problem = memory_.problem;
  if (problem.prefetch.mode == PrefetchMode::kDeadlines &&
      (problem.fetch_ns.empty() || problem.step_compute_ns == 0)) {
    options_.log->WarnOnce(
        "no deadlines",
        fmt::format("nothing is fetched ahead by deadlines, but {} chunks "
                    "before their use: {}",
                    problem.prefetch.depth, LackedByDeadlines(memory_)));
  }

  RankPoolsOptions pools;
  pools.device = options_.device;
  pools.executor = options_.executor;
  pools.workers = Workers();
  pools.make_device_slab = options_.make_device_slab;
  pools.device_budget = options_.device_budget - comm_->buffer_bytes();
  pools.host_budget = options_.host_budget + widened_;
  // As much as is needed: a parked device may come here too.
  pools.nvme_budget = memory_.home_bytes[TierIndex(Tier::kNvme)];
  for (const SlotClass& shape : memory_.device_classes) {
    pools.nvme_budget += RoundUp(shape.slot_bytes, KiB(4)) * shape.slots;
  }
  if (!options_.nvme.empty()) {
    pools.nvme_budget = NvmeLimit(options_.nvme).value_or(pools.nvme_budget);
  }
  pools.device_classes = memory_.device_classes;
  pools.host_classes = memory_.host_classes;
  pools.nvme_classes = memory_.nvme_classes;
  pools.nvme_drives = options_.nvme;
  pools.make_nvme_queue = options_.make_nvme_queue;
  pools.nvme_checksums = options_.nvme_checksums;
  pools.dry = options_.dry.has_value();
  if (options_.dry) pools.nvme_joined = options_.dry->nvme_piece;
  pools.log = options_.log;
  pools.poison = options_.poison;
  pools.nvme_class = memory_.staging_class;
  pools.coming = coming;
  pools.before = before;
  pools.device_memory = {
      .made = [comm = comm_](void* data,
                             Bytes size) { comm->RegisterMemory(data, size); },
      .going = [comm = comm_](void* data) { comm->UnregisterMemory(data); }};
  CASTOR_ASSIGN_OR_RETURN(pools_, RankPools::Create(std::move(pools)));

  device_lane_ = pools_->device().MakeLane(
      fmt::format("rank {} device", comm_->rank()), FailureCallback());
  if (memory_.norm_class >= 0) {
    // A page beside the budgets, as the rest of what ranks agree on.
    HostSlabOptions words;
    words.log = options_.log;
    CASTOR_ASSIGN_OR_RETURN(norm_words_,
                            pools_->device().MakeHostSlab(kNormBytes, words));
  }
  SetUpTurns(declared);
  return TakeOwnSlots();
}

void ZeroEngine::Impl::WidenStaging() {
  if (memory_.piece == Elements(0) || memory_.staging_class < 0) return;
  counted_piece_ = std::exchange(memory_.piece, Elements(0));
  Bytes largest;
  for (const auto& states : memory_.states) {
    for (const StatePlace& place : states) {
      largest = std::max(largest, RoundUp(place.bytes, KiB(4)));
    }
  }
  SlotClass& staging =
      memory_.host_classes[static_cast<size_t>(memory_.staging_class)];
  if (staging.slot_bytes >= largest) return;
  widened_ = (largest - staging.slot_bytes) * staging.slots;
  staging.slot_bytes = largest;
}

Status ZeroEngine::Impl::BuildStore() {
  ShardStoreOptions store;
  store.pools = pools_.get();
  store.clock = options_.clock;
  store.recorder = options_.recorder;
  if (options_.dry) store.traffic = options_.dry->traffic;
  store.on_failure = FailureCallback();
  store.rank = comm_->rank();
  store.names = sharding_.states;
  store.staging_class = memory_.staging_class;
  store.staging_slots = memory_.staging_slots;
  store.fetch_slots = memory_.fetch_slots;
  store_ = std::make_unique<ShardStore>(store);
  for (size_t c = 0; c < memory_.states.size(); ++c) {
    for (size_t k = 0; k < kStateKinds; ++k) {
      const StatePlace& place = memory_.states[c][k];
      if (place.bytes == Bytes(0)) continue;
      const ChunkId chunk(static_cast<int32_t>(c));
      const StateKind state = static_cast<StateKind>(k);
      CASTOR_RETURN_IF_ERROR(store_->AddShard(
          chunk, state, place.home, place.slot_class, place.bytes,
          BytesOf(memory_.piece, sharding_.dtype(state, GroupOf(chunk))),
          BytesOf(counted_piece_, sharding_.dtype(state, GroupOf(chunk)))));
    }
  }

  MemoryManagerOptions manager;
  manager.device = &pools_->pool(Tier::kDevice);
  manager.problem = memory_.problem;
  manager.policy = options_.policy;
  manager.source = this;
  manager.clock = options_.clock;
  manager.recorder = options_.recorder;
  if (options_.dry) {
    manager.traffic = options_.dry->traffic;
    manager.planned = options_.dry->planned;
    manager.plan = options_.dry->plan;
  }
  manager.log = options_.log;
  manager.rank = comm_->rank();
  if (!grads_in_place()) manager.grad_slots_kept = waits_;
  manager.own_lease_ends = options_.own_lease_ends;
  manager.grow_slots = grows_;
  manager.add_slot = [pools = pools_.get()](int32_t slot_class) {
    return pools->AddDeviceSlot(slot_class);
  };
  manager_ = std::make_unique<MemoryManager>(std::move(manager));
  grads_.resize(layout_->chunks().size());
  ahead_.resize(layout_->chunks().size());
  held_in_place_.resize(layout_->chunks().size());
  acquired_.resize(params_.size());
  return OkStatus();
}

void ZeroEngine::Impl::DropMemory() {
  lease_copies_.reset();
  manager_.reset();
  store_.reset();
  device_lane_.reset();
  norm_words_ = Slab();
  lease_slot_ = norm_slot_ = Slot();
  leases_ = LeaseArena();
  pools_.reset();
}

Status ZeroEngine::Impl::CloseMemory() {
  lease_copies_.reset();
  const FailureLog failures;
  const auto note = [&](const Status& status) {
    if (!status.ok()) failures.Add(status);
  };
  note(manager_->Close());
  manager_.reset();
  note(store_->Close());
  // Its lanes may have had times for the recorder.
  pools_->device().FinishTimes();
  store_.reset();
  GiveOwnSlotsBack();
  // What the trainer gave back may still be used by work on its lanes, which
  // ends before the memory goes.
  note(pools_->Close());
  return failures.Summary();
}

Status ZeroEngine::Impl::TakeOwnSlots() {
  TierPool& device = pools_->pool(Tier::kDevice);
  if (memory_.lease_class >= 0 && !lease_slot_.valid()) {
    CASTOR_ASSIGN_OR_RETURN(
        lease_slot_, device.Take(memory_.lease_class, SlotHold::kSettled));
    leases_ = LeaseArena(lease_slot_.data, lease_slot_.size);
  }
  if (memory_.norm_class >= 0 && !norm_slot_.valid()) {
    CASTOR_ASSIGN_OR_RETURN(
        norm_slot_, device.Take(memory_.norm_class, SlotHold::kSettled));
    device_lane_->Wait(norm_slot_.free_after);
    ResetSquares();
  }
  return OkStatus();
}

void ZeroEngine::Impl::GiveOwnSlotsBack() {
  TierPool& device = pools_->pool(Tier::kDevice);
  if (lease_slot_.valid()) {
    Event free_after;
    if (leases_.leases() == 0) {
      // The whole arena is free once nobody uses what was lent of it.
      free_after = leases_.Borrow(lease_slot_.size)->free_after;
    }
    device.Give(lease_slot_, std::move(free_after));
    lease_slot_ = Slot();
    leases_ = LeaseArena();
  }
  if (norm_slot_.valid()) {
    device.Give(norm_slot_, Event());  // the device lane is drained
    norm_slot_ = Slot();
  }
}

}  // namespace castor
