// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/engine_health.h"

#include <fmt/format.h>

namespace castor::internal {

Status EngineHealth::status() const {
  if (!first_->failed.load(std::memory_order_acquire)) [[likely]] {
    return OkStatus();
  }
  std::lock_guard lock(first_->mutex);
  return first_->status;
}

Status EngineHealth::Fail(const Status& failure) {
  OnFailure()(failure);
  return status();
}

Lane::OnFailure EngineHealth::OnFailure() const {
  return [first = first_, comm = comm_](const Status& status) {
    {
      std::lock_guard lock(first->mutex);
      if (first->status.ok()) first->status = status;
    }
    // Other ranks learn why before this one's calls fail and it may leave.
    comm->Abort(status.WithContext(fmt::format("rank {}", comm->rank())));
    first->failed.store(true, std::memory_order_release);
  };
}

}  // namespace castor::internal
