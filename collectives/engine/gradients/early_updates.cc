// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/gradients/early_updates.h"

#include <fmt/format.h>

namespace castor::internal {

Status EarlyUpdates::Allow(double lr) {
  if (progress_.micro_batches == 0) {
    return FailedPrecondition(
        "there is nothing to update outside a step: call BeginMicroBatch() "
        "first");
  }
  if (model_.counts_norm()) {
    return FailedPrecondition(
        "nothing is updated before all gradients are known where the norm is "
        "clipped or the loss is scaled: leave UpdateEarly() away");
  }
  lr_ = lr;
  return OkStatus();
}

Status EarlyUpdates::CheckRate(double lr) const {
  CASTOR_RETURN_IF_ERROR(CheckLearningRate(lr));
  if (!lr_ || *lr_ == lr) return OkStatus();
  return InvalidArgument(
      fmt::format("a step cannot be of rate {}: UpdateEarly() was told {}, and "
                  "chunks are updated with that",
                  lr, *lr_));
}

Status EarlyUpdates::RequireNotAllowed(std::string_view what) const {
  if (!lr_) return OkStatus();
  return FailedPrecondition(fmt::format(
      "chunks of this step are updated already, as UpdateEarly() allowed: set "
      "{} before it, or after Step()",
      what));
}

void EarlyUpdates::Note(ChunkId chunk) {
  updated_.resize(model_.chunks());
  updated_[chunk.index()] = true;
  ++count_;
}

Status EarlyUpdates::RequireNotUpdated(ChunkId chunk) const {
  if (!updated(chunk)) [[likely]] {
    return OkStatus();
  }
  return FailedPrecondition(fmt::format(
      "chunk {} is updated already, as UpdateEarly() allowed once the gradient "
      "of {} was handed back: call Step() first",
      chunk.value(), model_.Name(model_.layout->chunk(chunk).params.front())));
}

void EarlyUpdates::EndStep() {
  were_allowed_ = allowed();
  lr_.reset();
  updated_.clear();
}

}  // namespace castor::internal
