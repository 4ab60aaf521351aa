// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_GRADIENTS_EARLY_UPDATES_H_
#define CASTOR_COLLECTIVES_ENGINE_GRADIENTS_EARLY_UPDATES_H_

// Part of OptimizerPass (optimizer_pass.h).
//
// The chunks of a step that are updated before Step(), which a trainer allows
// by UpdateEarly(): with which rate, which chunks, and the errors of calls that
// come too late for an updated chunk. Owner thread only.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/engine/engine_model.h"
#include "collectives/engine/engine_progress.h"

namespace castor::internal {

class EarlyUpdates {
 public:
  EarlyUpdates(const EngineModel& model, const StepProgress& progress)
      : model_(model), progress_(progress) {}

  // Allows early updates in the rest of the step.
  Status Allow(double lr);
  bool allowed() const { return lr_.has_value(); }
  // REQUIRES: allowed.
  double rate() const { return *lr_; }
  // InvalidArgument where a step cannot have the rate.
  Status CheckRate(double lr) const;
  // Before the numbers that updates use are changed; `what`: which.
  Status RequireNotAllowed(std::string_view what) const;

  // The chunk's update is queued.
  void Note(ChunkId chunk);
  bool updated(ChunkId chunk) const {
    return !updated_.empty() && updated_[chunk.index()];
  }
  bool any() const { return !updated_.empty(); }
  Status RequireNotUpdated(ChunkId chunk) const;

  int64_t count() const { return count_; }  // of all steps
  // Whether the step that ended last allowed early updates.
  bool were_allowed() const { return were_allowed_; }
  void EndStep();
  // Drops the step. REQUIRES: no chunk is updated.
  void Abandon() { lr_.reset(); }

 private:
  const EngineModel& model_;
  const StepProgress& progress_;
  std::optional<double> lr_;
  std::vector<bool> updated_;  // by ChunkId; empty: none
  bool were_allowed_ = false;
  int64_t count_ = 0;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_GRADIENTS_EARLY_UPDATES_H_
