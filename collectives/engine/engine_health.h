// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_ENGINE_HEALTH_H_
#define CASTOR_COLLECTIVES_ENGINE_ENGINE_HEALTH_H_

// The first failure of an engine's background work, which ends the world of its
// ranks and is what every later call returns. All parts of the engine
// (zero_engine_parts.h) ask and tell it. Thread-safe.

#include <atomic>
#include <memory>
#include <mutex>

#include "chunk/base/status.h"
#include "collectives/communicator.h"
#include "offload/lane.h"

namespace castor::internal {

class EngineHealth {
 public:
  // `comm` outlives what OnFailure returns.
  explicit EngineHealth(Communicator* comm) : comm_(comm) {}

  Status status() const;
  // Ends the world with a failure that no lane has seen; returns the first one.
  Status Fail(const Status& failure);
  // For lanes, which may outlive this.
  Lane::OnFailure OnFailure() const;

 private:
  // Shared with the lanes' callbacks.
  struct First {
    std::atomic<bool> failed{false};
    std::mutex mutex;
    Status status;  // guarded by mutex
  };

  Communicator* const comm_;
  std::shared_ptr<First> first_ = std::make_shared<First>();
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_ENGINE_HEALTH_H_
