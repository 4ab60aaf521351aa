// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/worker_pool.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "chunk/base/check.h"
#include "offload/host/cpu_map.h"
#include "offload/host/cpu_quota.h"
#include "offload/kernels/numbers/float_mode.h"
#include "offload/lanes/start_thread.h"

namespace castor {
namespace {

constexpr int kAnyNode = -1;

// The pool whose range this thread is in, if any: such a thread is counted.
thread_local const WorkerPool* t_at_work = nullptr;

int UsableCores(const internal::CpuMap& cpus) {
  const int cores = static_cast<int>(cpus.node_of_core().size());
  const std::optional<double> quota = internal::ReadCpuQuota();
  if (!quota || *quota >= cores) return cores;
  // Part of a core more would run for part of each period only.
  return std::max(1, static_cast<int>(std::floor(*quota)));
}

}  // namespace

struct WorkerPool::Impl {
  // One call, on the caller's stack.
  struct Job {
    Call* call;
    const void* body;
    int64_t count;
    int node;
    int64_t next = 0;  // where the first range begins that nobody has
    int open = 0;      // ranges begun and not done
    UniqueFunction<void()>* begun = nullptr;
    Job* after = nullptr;
    std::condition_variable done{};
  };

  // All below are called, and return, with `lock` held.

  // Runs the next range of `job`, which has one, unlocked.
  void RunRange(std::unique_lock<std::mutex>& lock, Job* job) noexcept {
    const int64_t begin = job->next;
    const int64_t end = std::min(begin + kRange, job->count);
    job->next = end;
    const bool last = end == job->count;
    if (last) Unlink(job);
    ++job->open;
    lock.unlock();
    if (last && job->begun != nullptr) (*job->begun)();
    job->call(job->body, begin, end);
    lock.lock();
    // Under the lock: its caller may return, and the job be gone, once it is
    // released.
    if (--job->open == 0 && job->next == job->count) job->done.notify_one();
  }

  void Work(int node) noexcept {
    std::unique_lock lock(mutex);
    for (;;) {
      Job* job = nullptr;
      work.wait(lock, [&] {
        job = at_work < threads ? Find(node) : nullptr;
        return stopping || job != nullptr;
      });
      if (job == nullptr) return;
      ++at_work;
      do {
        RunRange(lock, job);
      } while (at_work <= threads && (job = Find(node)) != nullptr);
      --at_work;
    }
  }

  void Append(Job* job) {
    Job** end = &first;
    while (*end != nullptr) end = &(*end)->after;
    *end = job;
  }
  void Unlink(Job* job) {
    Job** at = &first;
    while (*at != job) at = &(*at)->after;
    *at = job->after;
  }
  // The oldest job with a range for a worker of `node`.
  Job* Find(int node) const {
    Job* job = first;
    while (job != nullptr && job->node != kAnyNode && job->node != node) {
      job = job->after;
    }
    return job;
  }

  internal::CpuMap cpus;
  int threads = 1;
  std::mutex mutex;
  std::condition_variable work;
  Job* first = nullptr;   // jobs with ranges that nobody has; guarded by mutex
  int at_work = 0;        // callers and workers in ranges; guarded by mutex
  bool stopping = false;  // guarded by mutex
  // Fixed once the pool is made.
  std::vector<int> node_of_worker;
  std::vector<std::thread> workers;
};

WorkerPool::WorkerPool(const WorkerPoolOptions& options)
    : impl_(std::make_unique<Impl>()) {
  CASTOR_CHECK_GE(options.threads, 0);
  Impl& impl = *impl_;
  CASTOR_CHECK_GT(options.sharers, 0);
  impl.threads = options.threads > 0
                     ? options.threads
                     : std::max(1, UsableCores(impl.cpus) / options.sharers);
  // Spread over the nodes as the cores are.
  const std::vector<int>& nodes = impl.cpus.node_of_core();
  const size_t count = static_cast<size_t>(impl.threads);
  for (size_t i = 1; i < count; ++i) {
    impl.node_of_worker.push_back(nodes[i * nodes.size() / count]);
  }
  std::lock_guard lock(impl.mutex);
  for (const int node : impl.node_of_worker) {
    // Where the system allows no more threads, those that there are will do.
    try {
      impl.workers.push_back(StartThread([this, node] { Serve(node); }));
    } catch (const ThreadLimit&) {
      break;
    }
  }
  impl.threads = static_cast<int>(impl.workers.size()) + 1;
  impl.node_of_worker.resize(impl.workers.size());
}

void WorkerPool::Serve(int node) {
  // Refused, it works all the same.
  if (impl_->cpus.nodes() > 1) impl_->cpus.BindCallingThread(node);
  const DefaultFloatMode mode;
  t_at_work = this;
  impl_->Work(node);
}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(impl_->mutex);
    CASTOR_CHECK(impl_->first == nullptr);
    impl_->stopping = true;
    impl_->work.notify_all();
  }
  for (std::thread& worker : impl_->workers) worker.join();
}

WorkerPool& WorkerPool::Process() {
  // Engines may outlive the objects that an exit destroys.
  static WorkerPool& pool = *new WorkerPool();
  return pool;
}

int WorkerPool::threads() const { return impl_->threads; }

void WorkerPool::Run(int64_t count, const void* near, const void* body,
                     Call* call, UniqueFunction<void()>* begun) {
  if (count <= 0) return;
  const DefaultFloatMode mode;
  Impl& impl = *impl_;
  if (count <= kRange || impl.workers.empty()) {
    for (int64_t begin = 0; begin < count; begin += kRange) {
      call(body, begin, std::min(begin + kRange, count));
    }
    return;
  }
  int node = near == nullptr ? kAnyNode : impl.cpus.NodeOf(near);
  const std::vector<int>& nodes = impl.node_of_worker;
  if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) {
    node = kAnyNode;
  }
  Impl::Job job{call, body, count, node};
  job.begun = begun;
  // A range of this pool's that calls ParallelFor is at work already.
  const WorkerPool* const outer = t_at_work;
  const int more = outer == this ? 0 : 1;

  std::unique_lock lock(impl.mutex);
  impl.at_work += more;
  impl.Append(&job);
  impl.work.notify_all();
  t_at_work = this;
  while (job.next < job.count) impl.RunRange(lock, &job);
  t_at_work = outer;
  impl.at_work -= more;
  if (impl.first != nullptr) impl.work.notify_all();
  job.done.wait(lock, [&job] { return job.open == 0; });
}

}  // namespace castor
