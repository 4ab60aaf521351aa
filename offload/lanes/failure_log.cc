// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lanes/failure_log.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "chunk/base/check.h"

namespace castor {

struct FailureLog::State {
  std::function<void(const Status&)> on_first;
  std::mutex mutex;
  Status first;       // guarded by mutex
  int64_t count = 0;  // guarded by mutex
};

FailureLog::FailureLog(std::function<void(const Status&)> on_first)
    : state_(std::make_shared<State>()) {
  state_->on_first = std::move(on_first);
}

void FailureLog::Add(const Status& failure) const {
  CASTOR_CHECK(!failure.ok());
  {
    std::lock_guard lock(state_->mutex);
    if (state_->count > 0) {
      state_->count += failure.message() != state_->first.message();
      return;
    }
    state_->count = 1;
    state_->first = failure;
  }
  if (state_->on_first) state_->on_first(failure);
}

Status FailureLog::Summary() const {
  std::lock_guard lock(state_->mutex);
  if (state_->count < 2) return state_->first;
  return Status(
      state_->first.code(),
      fmt::format("{} ({} more failure{} followed)", state_->first.message(),
                  state_->count - 1, state_->count == 2 ? "" : "s"));
}

int64_t FailureLog::count() const {
  std::lock_guard lock(state_->mutex);
  return state_->count;
}

}  // namespace castor
