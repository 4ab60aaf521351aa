// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_GRADIENTS_PROGRAM_UPDATE_H_
#define CASTOR_COLLECTIVES_ENGINE_GRADIENTS_PROGRAM_UPDATE_H_

// Part of OptimizerPass (optimizer_pass.h).

#include <mutex>
#include <utility>

#include "chunk/base/status.h"
#include "collectives/custom_update.h"

namespace castor::internal {

// Calls the program's update, until a call of a step fails: what comes after
// that is left as it was. Thread-safe.
class ProgramUpdate {
 public:
  explicit ProgramUpdate(UpdateFunction function)
      : function_(std::move(function)) {}

  void Call(const UpdateCall& call);
  // How the calls since the last one went. `wrote`: whether they changed, or
  // may have changed, anything.
  Status TakeOutcome(bool* wrote);

 private:
  const UpdateFunction function_;
  std::mutex calling_;  // taken before mutex_
  std::mutex mutex_;
  // All guarded by mutex_.
  Status failure_;
  bool wrote_ = false;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_GRADIENTS_PROGRAM_UPDATE_H_
