// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/zero_engine.h"

#include <algorithm>
#include <utility>

#include "collectives/engine/zero_engine_impl.h"
#include "collectives/sealing/seal_plan.h"
#include "placement/trace/trace_file.h"

namespace castor {

MemoryLease::MemoryLease(MemoryLease&& other) noexcept {
  *this = std::move(other);
}

MemoryLease& MemoryLease::operator=(MemoryLease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  engine_ = std::exchange(other.engine_, nullptr);
  lanes_ = std::move(other.lanes_);
  lease_ = other.lease_;
  data_ = std::exchange(other.data_, nullptr);
  size_ = other.size_;
  return *this;
}

void MemoryLease::AlsoUsedOn(Lane& lane) {
  if (std::ranges::find(lanes_, &lane) == lanes_.end()) lanes_.push_back(&lane);
}

void MemoryLease::Release() {
  if (engine_ == nullptr) return;
  engine_->impl_->Return(lease_, lanes_);
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
  CASTOR_RETURN_IF_ERROR(CheckOptions(options, communicator->world()));
  return std::unique_ptr<ZeroEngine>(
      new ZeroEngine(std::make_unique<Impl>(options, communicator)));
}

ZeroEngine::ZeroEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ZeroEngine::~ZeroEngine() = default;

Result<ParamId> ZeroEngine::Register(ParamSpec spec, Initializer initializer,
                                     std::string_view group) {
  return impl_->Register(std::move(spec), std::move(initializer), group);
}
Status ZeroEngine::Seal(const SealOptions& options) {
  return impl_->Told(impl_->Seal(options));
}
Status ZeroEngine::BeginMicroBatch(bool last) {
  return impl_->Told(impl_->BeginMicroBatch(last));
}
Result<ParamLease> ZeroEngine::Acquire(std::span<const ParamId> params,
                                       Lane& lane) {
  return impl_->Told(impl_->Acquire(params, lane));
}
Result<void*> ZeroEngine::Grad(ParamId param, Lane& lane) {
  return impl_->Told(impl_->Grad(param, lane));
}
Status ZeroEngine::GradReady(ParamId param, Lane& lane) {
  return impl_->Told(impl_->GradReady(param, lane));
}
Result<MemoryLease> ZeroEngine::Borrow(Bytes size, Lane& lane) {
  CASTOR_ASSIGN_OR_RETURN(LeaseArena::Lease lent,
                          impl_->Told(impl_->Borrow(size, lane)));
  MemoryLease lease;
  lease.engine_ = this;
  lease.lanes_ = {&lane};
  lease.lease_ = lent.id;
  lease.data_ = lent.data;
  lease.size_ = size;
  return lease;
}
Result<StepResult> ZeroEngine::Step(double lr) {
  return impl_->Told(impl_->Step(lr));
}
Result<EvaluateScope> ZeroEngine::Evaluate() {
  CASTOR_RETURN_IF_ERROR(impl_->BeginEvaluation());
  EvaluateScope scope;
  scope.engine_ = this;
  return scope;
}
Status ZeroEngine::Abandon() { return impl_->Told(impl_->Abandon()); }
Status ZeroEngine::ReadParam(ParamId param, std::span<float> out) {
  return impl_->Told(impl_->ReadParam(param, out));
}
Status ZeroEngine::WriteParam(ParamId param, std::span<const float> values) {
  return impl_->Told(impl_->WriteParam(param, values));
}

Status ZeroEngine::LeastOfRanks(std::span<int64_t> words) {
  return impl_->Told(impl_->AgreeBy(words));
}

Status ZeroEngine::WriteBack(std::span<const ParamValues> written) {
  return impl_->Told(impl_->WriteBack(written));
}
Status ZeroEngine::WriteGrad(ParamId param, std::span<const float> values) {
  return impl_->Told(impl_->WriteGrad(param, values));
}
Status ZeroEngine::FinishGradients() {
  return impl_->Told(impl_->FinishGradients());
}
Status ZeroEngine::DropGradient(ParamId param) {
  return impl_->Told(impl_->DropGradient(param));
}
Status ZeroEngine::ReadGrad(ParamId param, std::span<float> out) {
  return impl_->Told(impl_->ReadGrad(param, out));
}
Result<ParamId> ZeroEngine::Find(std::string_view name) const {
  return impl_->Find(name);
}
Status ZeroEngine::SetUpdate(UpdateFunction update) {
  return impl_->SetUpdate(std::move(update));
}

void ZeroEngine::WriteBehind(const Event& reads) { impl_->WriteBehind(reads); }

Status ZeroEngine::UpdateEarly(double lr) {
  return impl_->Told(impl_->UpdateEarly(lr));
}
Status ZeroEngine::SetLearningRate(std::string_view group, double lr) {
  return impl_->SetLearningRate(group, lr);
}
Status ZeroEngine::SetHyperParameters(std::string_view group,
                                      const HyperParameters& numbers) {
  return impl_->SetHyperParameters(group, numbers);
}
Result<double> ZeroEngine::ClipGradients(double max_norm) {
  return impl_->Told(impl_->ClipGradients(max_norm));
}
Status ZeroEngine::ReadState(ParamId param, StateKind state,
                             std::span<float> out) {
  return impl_->Told(impl_->ReadMoment(param, state, out));
}
Status ZeroEngine::WriteState(ParamId param, StateKind state,
                              std::span<const float> values) {
  return impl_->Told(impl_->WriteMoment(param, state, values));
}
Result<int64_t> ZeroEngine::UpdateCount(ParamId param) const {
  return impl_->UpdateCount(param);
}
Status ZeroEngine::SetUpdateCount(ParamId param, int64_t count) {
  return impl_->SetUpdateCount(param, count);
}
double ZeroEngine::LossScale() const { return impl_->scaler().scale(); }
const LossScaleState& ZeroEngine::loss_scale_state() const {
  return impl_->scaler().state();
}
Status ZeroEngine::RestoreLossScale(const LossScaleState& state) {
  return impl_->RestoreLossScale(state);
}
Result<uint64_t> ZeroEngine::WeightDigest() {
  return impl_->Told(impl_->WeightDigest());
}
Result<SaveResult> ZeroEngine::Save(const SaveOptions& options) {
  return impl_->Told(impl_->Save(options));
}
Result<SaveResult> ZeroEngine::FinishSave() {
  return impl_->Told(impl_->FinishSave());
}
Result<LoadResult> ZeroEngine::Load(const LoadOptions& options) {
  return impl_->Told(impl_->Load(options));
}
Status ZeroEngine::Reseal(const ResealOptions& options) {
  return impl_->Told(impl_->Reseal(options));
}
Result<ParkResult> ZeroEngine::Park(Tier to) {
  return impl_->Told(impl_->Park(to));
}
Status ZeroEngine::Resume() { return impl_->Told(impl_->Resume()); }
Status ZeroEngine::Close() { return impl_->Told(impl_->Close()); }
const ChunkLayout& ZeroEngine::layout() const { return impl_->layout(); }
const StateNames& ZeroEngine::state_names() const {
  return impl_->state_names();
}
EngineStats ZeroEngine::stats() const { return impl_->stats(); }
void ZeroEngine::Mark(std::string_view words) const { impl_->Mark(words); }

TraceFile ZeroEngine::RecordedTrace() const { return impl_->RecordedTrace(); }
std::optional<Tier> ZeroEngine::Home(ParamId param, StateKind state) const {
  return impl_->Home(param, state);
}
std::string ZeroEngine::ExplainHome(ChunkId chunk, StateKind state) const {
  return impl_->ExplainHome(chunk, state);
}
std::vector<std::string> ZeroEngine::PlacedByRules() const {
  return impl_->PlacedByRules();
}
int ZeroEngine::rank() const { return impl_->communicator()->rank(); }
int ZeroEngine::world() const { return impl_->communicator()->world(); }

}  // namespace castor
