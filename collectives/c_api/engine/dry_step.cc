// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/c_api/engine/dry_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace castor::c_api {

Result<DryStep> DryStep::Begin(Bytes largest, Device* device) {
  DryStep made(device);
  CASTOR_ASSIGN_OR_RETURN(made.params_scratch_, made.Make(largest));
  CASTOR_ASSIGN_OR_RETURN(made.grads_scratch_, made.Make(largest));
  return made;
}

Result<Slab> DryStep::Make(Bytes size) const {
  const Bytes whole = RoundUp(std::max(size, Bytes(1)), KiB(4));
  if (device_ != nullptr) return device_->MakeSlab(whole);
  return MakeHostSlab(whole, {.lock = false});
}

void* DryStep::Acquire(std::span<const ParamId> params) {
  params_.insert(params.begin(), params.end());
  Note();
  return params_scratch_.data();
}

void DryStep::Release(std::span<const ParamId> params) {
  for (const ParamId param : params) params_.erase(params_.find(param));
}

Status DryStep::RequireMicroBatch() const {
  if (micro_batches_ > 0) return OkStatus();
  return FailedPrecondition(
      "a gradient outside a micro-batch: begin one first, as in any step");
}

Result<void*> DryStep::Grad(ParamId param) {
  CASTOR_RETURN_IF_ERROR(RequireMicroBatch());
  grads_.insert(param);
  Note();
  return static_cast<void*>(grads_scratch_.data());
}

Status DryStep::GradReady(ParamId param) {
  if (grads_.erase(param) > 0) return OkStatus();
  return FailedPrecondition(fmt::format(
      "the gradient of parameter {} is handed back and was not asked for",
      param.value()));
}

Result<void*> DryStep::Borrow(Bytes size) {
  CASTOR_ASSIGN_OR_RETURN(Slab slab, Make(size));
  borrowed_ += size;
  seen_.largest_lease = std::max(seen_.largest_lease, borrowed_);
  lent_.push_back(std::move(slab));
  return static_cast<void*>(lent_.back().data());
}

void DryStep::Note() {
  if (micro_batches_ > 1) return;
  HeldTogether& held = seen_.held.emplace_back();
  for (auto p = params_.begin(); p != params_.end();
       p = params_.upper_bound(*p)) {
    held.params.push_back(*p);
  }
  held.grads.assign(grads_.begin(), grads_.end());
}

Result<SealOptions> DryStep::End() && {
  if (!params_.empty() || borrowed_ > Bytes(0)) {
    return FailedPrecondition(
        "leases are still held: release every lease before the step ends");
  }
  seen_.micro_batches = std::max<int64_t>(micro_batches_, 1);
  return std::move(seen_);
}

}  // namespace castor::c_api
