// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_LANES_FAILURE_LOG_H_
#define CASTOR_OFFLOAD_LANES_FAILURE_LOG_H_

// The failures of work in the background: the first one, which explains the
// others, and how many came after it. Who waited for what failed meets the same
// failure again, in the same words, and that is not another one. What drains or
// closes reports from here. Shared by all who may fail, some of which outlive
// their owner: a copyable handle. Thread-safe. Part of the lanes (lane.h).

#include <cstdint>
#include <functional>
#include <memory>

#include "chunk/base/status.h"

namespace castor {

class FailureLog {
 public:
  // `on_first` is called once, with the first failure, from the thread that
  // met it, before Add returns there.
  explicit FailureLog(std::function<void(const Status&)> on_first = {});

  // REQUIRES: !failure.ok().
  void Add(const Status& failure) const;
  // Ok while there is none; else the first, and how many others followed.
  Status Summary() const;
  // Failures so far.
  int64_t count() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_LANES_FAILURE_LOG_H_
