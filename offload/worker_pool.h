// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_WORKER_POOL_H_
#define CASTOR_OFFLOAD_WORKER_POOL_H_

// Spreads one pass over a range of elements, an optimizer step say, over the
// cores of the process. One pool serves all engines of a process: all
// engines together start no more threads than the process has cores.
//
// The caller takes part, which is why lane work may call this: a call ends even
// if no worker ever comes, and waits only for ranges that a worker has begun.
// Workers come while those at work, callers among them, are fewer than
// threads(), and step back after the range they are in when more callers come.
//
// Ranges are cut at multiples of kRange from the start, whatever the number of
// threads, so that what depends on them (sums of blocks) does not depend on the
// machine. Thread-safe.

#include <cstdint>
#include <memory>

#include "chunk/base/unique_function.h"

namespace castor {

struct WorkerPoolOptions {
  // Threads at work at one time, callers among them; 0: as many as this process
  // may use cores, by its affinity mask and the quotas of its cgroups.
  int threads = 0;
  // Pools, in processes of their own, that share these cores: each takes its
  // part, at least one core.
  int sharers = 1;
};

class WorkerPool {
 public:
  // Elements in a range, a multiple of 64: about a megabyte of optimizer states
  // and tens of microseconds, much longer than handing it out takes.
  static constexpr int64_t kRange = int64_t{1} << 15;

  // Starts threads() - 1 workers, fewer where the system refuses more, each
  // bound by hwloc to the cores of one NUMA node where there are several. A
  // node and not a core each: a caller may run anywhere, and other processes
  // may have chosen the same cores. REQUIRES: options.threads >= 0 and
  // options.sharers > 0.
  explicit WorkerPool(const WorkerPoolOptions& options = {});
  // REQUIRES: no call is under way.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // The process's own, made at the first call and never destroyed.
  static WorkerPool& Process();

  int threads() const;

  // Calls body(begin, end) for consecutive ranges that together are [0, count),
  // each once, in any order, on several threads at a time, in the default
  // floating-point mode; returns when all are done. `near` is memory that the
  // body works on, whose NUMA node says which workers are to come, or null. The
  // body must not throw nor wait for other ranges; it may call ParallelFor.
  // `begun`, where given, is called once, on any thread, when all ranges have
  // begun and workers look for others; not where the caller ran all of them.
  template <typename Body>
  void ParallelFor(int64_t count, const void* near, const Body& body,
                   UniqueFunction<void()>* begun = nullptr) {
    Run(
        count, near, &body,
        [](const void* the_body, int64_t begin, int64_t end) {
          (*static_cast<const Body*>(the_body))(begin, end);
        },
        begun);
  }

 private:
  using Call = void(const void* body, int64_t begin, int64_t end);
  struct Impl;

  // What a worker's thread does.
  void Serve(int node);
  void Run(int64_t count, const void* near, const void* body, Call* call,
           UniqueFunction<void()>* begun);

  std::unique_ptr<Impl> impl_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_WORKER_POOL_H_
