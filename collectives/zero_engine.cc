// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/zero_engine.h"

#include <fmt/format.h>

#include <utility>

#include "chunk/chunk_packer.h"
#include "collectives/zero_engine_impl.h"

namespace castor {

MemoryLease::MemoryLease(MemoryLease&& other) noexcept {
  *this = std::move(other);
}

MemoryLease& MemoryLease::operator=(MemoryLease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  engine_ = std::exchange(other.engine_, nullptr);
  lane_ = other.lane_;
  lease_ = other.lease_;
  data_ = std::exchange(other.data_, nullptr);
  size_ = other.size_;
  return *this;
}

void MemoryLease::Release() {
  if (engine_ == nullptr) return;
  engine_->impl_->Return(lease_, *lane_);
  engine_ = nullptr;
  data_ = nullptr;
}

EvaluateScope::EvaluateScope(EvaluateScope&& other) noexcept
    : engine_(std::exchange(other.engine_, nullptr)) {}

EvaluateScope& EvaluateScope::operator=(EvaluateScope&& other) noexcept {
  if (this == &other) return *this;
  End();
  engine_ = std::exchange(other.engine_, nullptr);
  return *this;
}

void EvaluateScope::End() {
  if (engine_ == nullptr) return;
  engine_->impl_->EndEvaluation();
  engine_ = nullptr;
}

Result<std::unique_ptr<ZeroEngine>> ZeroEngine::Create(
    const ZeroOptions& options, Communicator* communicator) {
  CASTOR_CHECK(communicator != nullptr);
  CASTOR_CHECK(options.executor != nullptr);
  if (options.stage < 0 || options.stage > 3) {
    return InvalidArgument(fmt::format(
        "stage {} does not exist: ZeRO has stages 0 to 3", options.stage));
  }
  if (options.clip_norm < 0) {
    return InvalidArgument(fmt::format(
        "a gradient norm cannot be clipped to {}: give a positive norm, or 0 "
        "for no clipping",
        options.clip_norm));
  }
  if (options.prefetch_depth < 0) {
    return InvalidArgument(
        fmt::format("prefetch depth {} is negative: 0 turns prefetch off",
                    options.prefetch_depth));
  }
  PackOptions pack;
  pack.world = communicator->world();
  pack.align = options.align;
  CASTOR_RETURN_IF_ERROR(ValidatePackOptions(pack));
  return std::unique_ptr<ZeroEngine>(
      new ZeroEngine(std::make_unique<Impl>(options, communicator)));
}

ZeroEngine::ZeroEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ZeroEngine::~ZeroEngine() = default;

Result<ParamId> ZeroEngine::Register(ParamSpec spec, Initializer initializer) {
  return impl_->Register(std::move(spec), std::move(initializer));
}
Status ZeroEngine::Seal(const SealOptions& options) {
  return impl_->Seal(options);
}
Status ZeroEngine::BeginMicroBatch(bool last) {
  return impl_->BeginMicroBatch(last);
}
Result<ParamLease> ZeroEngine::Acquire(std::span<const ParamId> params,
                                       Lane& lane) {
  return impl_->Acquire(params, lane);
}
Result<void*> ZeroEngine::Grad(ParamId param, Lane& lane) {
  return impl_->Grad(param, lane);
}
Status ZeroEngine::GradReady(ParamId param, Lane& lane) {
  return impl_->GradReady(param, lane);
}
Result<MemoryLease> ZeroEngine::Borrow(Bytes size, Lane& lane) {
  CASTOR_ASSIGN_OR_RETURN(LeaseArena::Lease lent, impl_->Borrow(size, lane));
  MemoryLease lease;
  lease.engine_ = this;
  lease.lane_ = &lane;
  lease.lease_ = lent.id;
  lease.data_ = lent.data;
  lease.size_ = size;
  return lease;
}
Result<StepResult> ZeroEngine::Step(double lr) { return impl_->Step(lr); }
Result<EvaluateScope> ZeroEngine::Evaluate() {
  CASTOR_RETURN_IF_ERROR(impl_->BeginEvaluation());
  EvaluateScope scope;
  scope.engine_ = this;
  return scope;
}
Status ZeroEngine::Abandon() { return impl_->Abandon(); }
Status ZeroEngine::ReadParam(ParamId param, std::span<float> out) {
  return impl_->ReadParam(param, out);
}
Result<uint64_t> ZeroEngine::WeightDigest() { return impl_->WeightDigest(); }
Status ZeroEngine::Close() { return impl_->Close(); }
const ChunkLayout& ZeroEngine::layout() const { return impl_->layout(); }
EngineStats ZeroEngine::stats() const { return impl_->stats(); }
int ZeroEngine::rank() const { return impl_->communicator()->rank(); }
int ZeroEngine::world() const { return impl_->communicator()->world(); }

ZeroEngine::Impl::Impl(const ZeroOptions& options, Communicator* communicator)
    : options_(options), comm_(communicator) {
  if (options_.clock == nullptr) options_.clock = &steady_clock_;
  if (options_.log == nullptr) options_.log = &default_log_;
  sharding_.stage = options_.stage;
  sharding_.world = comm_->world();
  sharding_.rank = comm_->rank();
}

ZeroEngine::Impl::~Impl() {
  if (phase_ != Phase::kSealed) return;
  // Peers may be waiting for collectives that this rank will never make.
  if (comm_->world() > 1) {
    comm_->Abort(Aborted(
        fmt::format("rank {} left without closing its engine", comm_->rank())));
  }
  if (Status status = Close(); !status.ok() && comm_->world() == 1) {
    options_.log->Error(status.ToString());
  }
}

Lane::OnFailure ZeroEngine::Impl::FailureCallback() const {
  return [failure = failure_, comm = comm_](const Status& status) {
    {
      std::lock_guard lock(failure->mutex);
      if (failure->status.ok()) failure->status = status;
    }
    failure->failed.store(true, std::memory_order_release);
    comm->Abort(status);
  };
}

Status ZeroEngine::Impl::Health() const {
  if (!failure_->failed.load(std::memory_order_acquire)) [[likely]] {
    return OkStatus();
  }
  std::lock_guard lock(failure_->mutex);
  return failure_->status;
}

Status ZeroEngine::Impl::RequireSealed() const {
  if (phase_ != Phase::kSealed) [[unlikely]] {
    return FailedPrecondition(phase_ == Phase::kOpen
                                  ? "the engine is not sealed yet: call Seal"
                                  : "the engine is closed");
  }
  return Health();
}

Status ZeroEngine::Impl::RequireNothingOpen(std::string_view call) const {
  if (manager_->pinned()) {
    return FailedPrecondition(fmt::format(
        "parameters are still held: release every lease before {}", call));
  }
  if (evaluating_ > 0) {
    return FailedPrecondition(
        fmt::format("an Evaluate scope is still open: end it before {}", call));
  }
  return OkStatus();
}

std::string ZeroEngine::Impl::Name(ParamId param) const {
  return params_[param.index()].spec.name;
}

Result<ParamId> ZeroEngine::Impl::Register(ParamSpec spec,
                                           Initializer initializer) {
  if (phase_ != Phase::kOpen) {
    return FailedPrecondition(fmt::format(
        "parameter {} comes too late: register before Seal", spec.name));
  }
  if (spec.dtype != DType::kF32 && spec.dtype != DType::kBF16) {
    return InvalidArgument(
        fmt::format("parameter {} is {}: the engine trains F32 and BF16",
                    spec.name, DTypeName(spec.dtype)));
  }
  Param param;
  CASTOR_ASSIGN_OR_RETURN(param.size, CountElements(spec.shape, spec.dtype));
  param.spec = std::move(spec);
  param.initializer = std::move(initializer);
  params_.push_back(std::move(param));
  return ParamId(static_cast<int32_t>(params_.size()) - 1);
}

Result<LeaseArena::Lease> ZeroEngine::Impl::Borrow(Bytes size, Lane& lane) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_ASSIGN_OR_RETURN(LeaseArena::Lease lease, leases_.Borrow(size));
  lane.Wait(lease.free_after);
  return lease;
}

void ZeroEngine::Impl::Return(int32_t lease, Lane& lane) {
  leases_.Return(lease, lane.Record());
}

Status ZeroEngine::Impl::BeginEvaluation() {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
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
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen("Close"));
  if (leases_.leases() > 0) {
    return FailedPrecondition(fmt::format(
        "{} bytes of borrowed memory are still held: release every lease "
        "before Close",
        leases_.in_use().count()));
  }
  comm_lane_->Drain().IgnoreError();
  host_lane_->Drain().IgnoreError();
  device_lane_->Drain().IgnoreError();
  final_stats_ = stats();
  phase_ = Phase::kClosed;
  manager_.reset();
  store_.reset();
  Status closed = OkStatus();
  if (pools_->nvme() != nullptr) closed = pools_->nvme()->Close();
  CASTOR_RETURN_IF_ERROR(Health());
  return closed;
}

}  // namespace castor
