// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "chunk/text/units_text.h"
#include "collectives/engine/zero_engine_impl.h"
#include "collectives/sealing/chunk_words.h"
#include "collectives/sealing/seal_plan.h"
#include "offload/lanes/failure_log.h"

namespace castor {

ZeroEngine::Impl::Impl(const ZeroOptions& options, Communicator* communicator)
    : options_(options),
      comm_(communicator),
      groups_(options.optimizer, options.groups),
      scaler_(options.loss_scaling) {
  if (options_.clock == nullptr) options_.clock = &steady_clock_;
  if (options_.log == nullptr) options_.log = &default_log_;
  sharding_ = ShardingOf(options_, comm_->world(), comm_->rank());
}

ZeroEngine::Impl::~Impl() {
  if (phase_ == Phase::kClosed) return;
  const Status failure = Health();
  // Peers may be waiting for collectives that this rank will never make, of
  // which Seal has the first.
  if (comm_->world() > 1) {
    comm_->Abort(
        failure.ok()
            ? Aborted(fmt::format("rank {} left without closing its engine",
                                  comm_->rank()))
            : failure.WithContext(fmt::format("rank {}", comm_->rank())));
  }
  if (phase_ == Phase::kOpen) return;
  const Status closed = ShutDown();
  for (const Status& status : {failure, closed}) {
    if (!status.ok()) options_.log->Error(status.ToString());
  }
}

Lane::OnFailure ZeroEngine::Impl::FailureCallback() const {
  return [failure = failure_, comm = comm_](const Status& status) {
    {
      std::lock_guard lock(failure->mutex);
      if (failure->status.ok()) failure->status = status;
    }
    // Other ranks learn why before this one's calls fail and it may leave.
    comm->Abort(status.WithContext(fmt::format("rank {}", comm->rank())));
    failure->failed.store(true, std::memory_order_release);
  };
}

Status ZeroEngine::Impl::Fail(const Status& status) {
  FailureCallback()(status);
  return Health();
}

Status ZeroEngine::Impl::Health() const {
  if (!failure_->failed.load(std::memory_order_acquire)) [[likely]] {
    return OkStatus();
  }
  std::lock_guard lock(failure_->mutex);
  return failure_->status;
}

Status ZeroEngine::Impl::RequireSealed() const {
  if (parked_) [[unlikely]] {
    return FailedPrecondition("the engine is parked: call Resume() first");
  }
  return RequireStates();
}

Status ZeroEngine::Impl::RequireStates() const {
  if (phase_ != Phase::kSealed) [[unlikely]] {
    return FailedPrecondition(phase_ == Phase::kOpen
                                  ? "the engine is not sealed yet: call Seal()"
                                  : "the engine is closed");
  }
  return Health();
}

Status ZeroEngine::Impl::RequireNoLeases(std::string_view call) const {
  if (manager_->pinned()) {
    return FailedPrecondition(fmt::format(
        "parameters are still held: release every lease before {}", call));
  }
  if (leases_.leases() > 0) {
    return FailedPrecondition(fmt::format(
        "{} of borrowed memory are still held: release every lease before {}",
        FormatBytes(leases_.in_use()), call));
  }
  return OkStatus();
}

Status ZeroEngine::Impl::RequireNothingOpen(std::string_view call) const {
  if (!options_.own_lease_ends && manager_->pinned()) {
    return FailedPrecondition(fmt::format(
        "parameters are still held: release every lease before {}", call));
  }
  if (evaluating_ > 0) {
    return FailedPrecondition(
        fmt::format("an evaluation is still open: end it before {}", call));
  }
  return OkStatus();
}

Status ZeroEngine::Impl::RequireBetweenSteps(std::string_view call) const {
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen(call));
  if (micro_batches_ == 0) return OkStatus();
  return FailedPrecondition(fmt::format(
      "a step is half done: call Step() or Abandon() before {}", call));
}

Status ZeroEngine::Impl::WithNames(const Status& failure) const {
  if (!layout_) return failure;
  return Status(failure.code(),
                NameChunks(failure.message(), *layout_,
                           [this](ParamId param) { return Name(param); }))
      .WithRaises({failure.raises().begin(), failure.raises().end()});
}

std::string ZeroEngine::Impl::Name(ParamId param) const {
  return params_[param.index()].spec.name;
}

Result<ParamId> ZeroEngine::Impl::Register(ParamSpec spec,
                                           Initializer initializer,
                                           std::string_view group) {
  if (phase_ != Phase::kOpen) {
    return FailedPrecondition(fmt::format(
        "parameter {} comes too late: register before Seal()", spec.name));
  }
  Result<ParamId> registered =
      AddParam(std::move(spec), std::move(initializer), group);
  // The others, where it did not fail, must not wait for this rank in Seal.
  if (!registered.ok() && comm_->world() > 1) {
    comm_->Abort(
        registered.status().WithContext(fmt::format("rank {}", comm_->rank())));
  }
  return registered;
}

Result<ParamId> ZeroEngine::Impl::AddParam(ParamSpec spec,
                                           Initializer initializer,
                                           std::string_view group) {
  CASTOR_RETURN_IF_ERROR(CheckTrains(spec, options_.grad_mode));
  Param param;
  CASTOR_ASSIGN_OR_RETURN(param.size, CountElements(spec.shape, spec.dtype));
  const Result<size_t> found = groups_.Find(group);
  if (!found.ok()) {
    return found.status().WithContext(fmt::format("parameter {}", spec.name));
  }
  param.group = *found;
  param.spec = std::move(spec);
  param.spec.whole = options_.optimizer.kind == OptimizerKind::kCustom &&
                     param.spec.trainable &&
                     groups_.SpanOf(param.group) == UpdateSpan::kParameter;
  if (param.spec.trainable) param.spec.states = groups_.StatesOf(param.group);
  param.initializer = std::move(initializer);
  params_.push_back(std::move(param));
  return ParamId(static_cast<int32_t>(params_.size()) - 1);
}

Result<LeaseArena::Lease> ZeroEngine::Impl::Borrow(Bytes size, Lane& lane) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_ASSIGN_OR_RETURN(LeaseArena::Lease lease, leases_.Borrow(size));
  lane.Wait(lease.free_after);
  RecordLeaseBegin(lane, lease, size);
  return lease;
}

void ZeroEngine::Impl::Return(int32_t lease, std::span<Lane* const> lanes) {
  RecordLeaseEnd(*lanes.front(), lease);
  std::vector<Event> ends;
  for (Lane* lane : lanes) ends.push_back(lane->Record());
  Event free_after = AllOf(ends);
  // A lease may end after an engine that failed.
  if (pools_ != nullptr) {
    free_after = pools_->Poison(leases_.DataOf(lease), leases_.SizeOf(lease),
                                std::move(free_after));
  }
  leases_.Return(lease, std::move(free_after));
}

Status ZeroEngine::Impl::BeginEvaluation() {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  if (grads_in_place()) {
    for (size_t p = 0; p < params_.size(); ++p) {
      CASTOR_RETURN_IF_ERROR(
          RequireNotOverwritten(ParamId(static_cast<int32_t>(p))));
    }
  }
  // Its gathers come behind the same reductions on all ranks.
  FollowPlan(std::nullopt, false);
  ++evaluating_;
  manager_->BeginEvaluation();
  return OkStatus();
}

void ZeroEngine::Impl::EndEvaluation() {
  --evaluating_;
  manager_->EndEvaluation();
}

Status ZeroEngine::Impl::Close() {
  if (phase_ != Phase::kSealed) return Health();
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen("Close()"));
  CASTOR_RETURN_IF_ERROR(RequireNoLeases("Close()"));
  if (saving_ != nullptr) {
    return FailedPrecondition(
        "a save is under way: call FinishSave() before Close()");
  }
  const Status closed = ShutDown();
  CASTOR_RETURN_IF_ERROR(Health());
  return closed;
}

Status ZeroEngine::Impl::ShutDown() {
  saving_.reset();
  comm_lane_->Drain().IgnoreError();
  reduce_lane_->Drain().IgnoreError();
  host_lane_->Drain().IgnoreError();
  device_lane_->Drain().IgnoreError();
  // Until here, lanes of hardware may have times for the recorder.
  pools_->device().FinishTimes();
  manager_->DropAll(RunCause::kNone);
  final_stats_ = stats();
  phase_ = Phase::kClosed;
  parked_ = false;
  // A step that was left half done: its work is over, as the door asks for.
  for (size_t c = 0; c < grads_.size(); ++c) {
    if (grads_[c].state != GradState::kOpen) continue;
    manager_->CloseGrad(ChunkId(static_cast<int32_t>(c)), grads_[c].slot,
                        Event());
  }
  return CloseMemory();
}

EngineStats ZeroEngine::Impl::stats() const {
  if (phase_ == Phase::kClosed) return final_stats_;
  EngineStats stats;
  if (phase_ != Phase::kSealed) return stats;
  for (Tier tier : kAllTiers) {
    const PoolStats& pool = pools_->pool(tier).stats();
    const Bytes more = tier == Tier::kHost ? widened_ : Bytes(0);
    stats.tiers[TierIndex(tier)] = {pool.budget - more, pool.in_use - more,
                                    pool.peak - more};
    stats.home_bytes[TierIndex(tier)] = memory_.home_bytes[TierIndex(tier)];
    for (size_t k = 0; k < kStateKinds; ++k) {
      stats.state_bytes[k][TierIndex(tier)] =
          memory_.placement.bytes[k][TierIndex(tier)];
    }
    for (Tier to : kAllTiers) {
      stats.moved[TierIndex(tier)][TierIndex(to)] =
          store_->moved()[TierIndex(tier)][TierIndex(to)];
    }
  }
  if (const NvmeStore* nvme = pools_->nvme(); nvme != nullptr) {
    stats.most_nvme_written = nvme->stats().most_written_in_a_step;
  }
  const MemoryManagerStats& manager = manager_->stats();
  stats.wire_sent = comm_->stats().bytes_sent;
  stats.exchange = comm_->buffer_bytes();
  stats.engine_copies = engine_copies_;
  stats.gathers = manager.gathers;
  stats.fetches = manager.fetches;
  stats.prefetched_fetches = manager.prefetched_fetches;
  stats.prefetched_gathers = manager.prefetched_gathers;
  stats.cancelled_gathers = manager.cancelled_gathers;
  stats.releases = manager.releases;
  stats.early_updates = early_updates_;
  stats.divergences = manager.divergences;
  stats.grown_slots = manager.grown_slots;
  stats.extra_slots = manager.extra_slots;
  stats.reduce_scatters = reduce_scatters_;
  stats.stalls_by_cause = manager_->stalls();
  for (const StallSum& sum : stats.stalls_by_cause) {
    stats.stalls += sum.count;
    stats.stall_ns += sum.ns;
  }
  stats.tier_allocations = pools_->allocations();
  for (int64_t slots : memory_.problem.slots) stats.gathered_slots += slots;
  stats.chunks = static_cast<int64_t>(layout_->chunks().size());
  std::set<Bytes> sizes;
  for (const GroupInfo& group : layout_->groups()) {
    if (group.chunks.empty()) continue;
    sizes.insert(BytesOf(group.chunk_size, group.dtype));
  }
  stats.chunk_sizes = static_cast<int64_t>(sizes.size());
  if (!sizes.empty()) stats.chunk_bytes = *sizes.rbegin();
  return stats;
}

}  // namespace castor
