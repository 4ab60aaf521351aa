// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// States between steps: values, groups, checkpoints, an empty device.

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "collectives/engine/rank_words.h"
#include "collectives/engine/zero_engine_parts.h"

namespace castor {

Status ZeroEngine::ReadParam(ParamId param, std::span<float> out) {
  return parts_->Told(parts_->values.ReadParam(param, out));
}
Status ZeroEngine::WriteParam(ParamId param, std::span<const float> values) {
  return parts_->Told(parts_->values.WriteParam(param, values));
}
Status ZeroEngine::WriteBack(std::span<const ParamValues> written) {
  return parts_->Told(parts_->values.WriteBack(written));
}
Status ZeroEngine::ReadGrad(ParamId param, std::span<float> out) {
  return parts_->Told(parts_->values.ReadGrad(param, out));
}
Status ZeroEngine::WriteGrad(ParamId param, std::span<const float> values) {
  return parts_->Told(parts_->values.WriteGrad(param, values, true));
}
Status ZeroEngine::DropGradient(ParamId param) {
  return parts_->Told(parts_->values.DropGrad(param));
}
Status ZeroEngine::ReadState(ParamId param, StateKind state,
                             std::span<float> out) {
  return parts_->Told(parts_->values.ReadState(param, state, out));
}
Status ZeroEngine::WriteState(ParamId param, StateKind state,
                              std::span<const float> values) {
  return parts_->Told(parts_->values.WriteState(param, state, values));
}
Status ZeroEngine::SetUpdateCount(ParamId param, int64_t count) {
  return parts_->values.SetUpdateCount(param, count);
}
Result<uint64_t> ZeroEngine::WeightDigest() {
  CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->base.rules.RequireStates()));
  return parts_->Told(parts_->values.Digest());
}

Result<int64_t> ZeroEngine::UpdateCount(ParamId param) const {
  CASTOR_RETURN_IF_ERROR(parts_->base.rules.RequireStates());
  CASTOR_CHECK(param.valid() &&
               param.index() < parts_->base.model.params.size());
  return parts_->base.scalars.updates[param.index()];
}

Status ZeroEngine::LeastOfRanks(std::span<int64_t> words) {
  CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->base.rules.RequireSealed()));
  return parts_->Told(internal::RankWords(parts_->base)
                          .LeastOf(words, "agree by words of the trainer's"));
}

Status ZeroEngine::SetUpdate(UpdateFunction update) {
  return parts_->optimizer.SetUpdate(std::move(update));
}

Status ZeroEngine::SetLearningRate(std::string_view group, double lr) {
  CASTOR_RETURN_IF_ERROR(parts_->optimizer.early().RequireNotAllowed("rates"));
  parts_->optimizer.guesses().DropAll();
  return parts_->base.scalars.groups.SetLearningRate(group, lr);
}

Status ZeroEngine::SetHyperParameters(std::string_view group,
                                      const HyperParameters& numbers) {
  CASTOR_RETURN_IF_ERROR(
      parts_->optimizer.early().RequireNotAllowed("hyper-parameters"));
  parts_->optimizer.guesses().DropAll();
  return parts_->base.scalars.groups.SetHyperParameters(group, numbers);
}

double ZeroEngine::LossScale() const {
  return parts_->base.scalars.scaler.scale();
}
const LossScaleState& ZeroEngine::loss_scale_state() const {
  return parts_->base.scalars.scaler.state();
}

Status ZeroEngine::RestoreLossScale(const LossScaleState& state) {
  if (parts_->base.progress.micro_batches > 0) {
    return FailedPrecondition(
        "a step is half done, with gradients of another loss scale: call "
        "Step() or Abandon() before RestoreLossScale()");
  }
  return parts_->base.scalars.scaler.Restore(state);
}

Result<SaveResult> ZeroEngine::Save(const SaveOptions& options) {
  const internal::CallRules& rules = parts_->base.rules;
  CASTOR_RETURN_IF_ERROR(parts_->Told(rules.RequireStates()));
  // Gradients are not saved, and no state has changed since the last step,
  // unless updates have begun.
  CASTOR_RETURN_IF_ERROR(parts_->optimizer.early().allowed()
                             ? rules.RequireBetweenSteps("Save()")
                             : rules.RequireNothingOpen("Save()"));
  return parts_->Told(parts_->checkpoints.Save(options));
}

Result<SaveResult> ZeroEngine::FinishSave() {
  CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->base.rules.RequireStates()));
  return parts_->Told(parts_->checkpoints.FinishSave());
}

Result<LoadResult> ZeroEngine::Load(const LoadOptions& options) {
  const internal::CallRules& rules = parts_->base.rules;
  CASTOR_RETURN_IF_ERROR(parts_->Told(rules.RequireSealed()));
  CASTOR_RETURN_IF_ERROR(rules.RequireBetweenSteps("Load()"));
  return parts_->Told(parts_->checkpoints.Load(options));
}

Result<ParkResult> ZeroEngine::Park(Tier to) {
  const internal::CallRules& rules = parts_->base.rules;
  CASTOR_RETURN_IF_ERROR(parts_->Told(rules.RequireStates()));
  if (to == Tier::kDevice) {
    return InvalidArgument(
        "a device cannot be parked on itself: name host memory or NVMe");
  }
  CASTOR_RETURN_IF_ERROR(rules.RequireBetweenSteps("Park()"));
  CASTOR_RETURN_IF_ERROR(rules.RequireNoLeases("Park()"));
  CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->checkpoints.EndSave()));
  return parts_->Told(parts_->offloader.Park(to));
}

Status ZeroEngine::Resume() {
  CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->base.rules.RequireStates()));
  return parts_->Told(parts_->offloader.Resume());
}

}  // namespace castor
