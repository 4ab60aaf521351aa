// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/gradients/program_update.h"

namespace castor::internal {

void ProgramUpdate::Call(const UpdateCall& call) {
  // The host's lane and the device's come here at the same time.
  std::lock_guard one_call(calling_);
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
  }
  const Status status = function_(call);
  std::lock_guard lock(mutex_);
  wrote_ = wrote_ || status.code() != ErrorCode::kFailedPrecondition;
  if (failure_.ok()) failure_ = status;
}

Status ProgramUpdate::TakeOutcome(bool* wrote) {
  std::lock_guard lock(mutex_);
  *wrote = std::exchange(wrote_, false);
  return std::exchange(failure_, OkStatus());
}

}  // namespace castor::internal
