// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_LANES_EXECUTOR_H_
#define CASTOR_OFFLOAD_LANES_EXECUTOR_H_

// Where background work runs. One thread pool serves all lanes of all ranks of
// a process; tests crank an executor by hand
// (tests/support/fakes/manual_executor.h) to fix the interleaving.
// Implementations are thread-safe. Part of the lanes (lane.h).

#include <memory>

#include "chunk/base/unique_function.h"

namespace castor {

class Executor {
 public:
  using Task = UniqueFunction<void()>;

  virtual ~Executor() = default;
  // Runs `task` some time later on a thread of the executor. Never runs it
  // before returning. Tasks must not block on other tasks: there may be one
  // thread only.
  virtual void Post(Task task) = 0;
};

// `threads` worker threads, first in, first out. The destructor runs what was
// posted and joins.
class ThreadPool final : public Executor {
 public:
  // REQUIRES: threads >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void Post(Task task) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_LANES_EXECUTOR_H_
