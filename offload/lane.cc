// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lane.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>

#include "chunk/base/check.h"
#include "offload/lanes/ring_queue.h"

namespace castor {
namespace {

// The most operations of one turn on the executor. A lane whose queue grows
// faster than the lane runs must not keep the thread from other lanes.
constexpr int kOperationsPerTurn = 64;

struct TimeAsked {
  const Clock* clock = nullptr;
  Lane::TimeNote note;
};

using Operation = std::variant<std::monostate, Event /* wait for it */,
                               Lane::Work, Lane::AsyncWork, TimeAsked,
                               EventSource /* complete it: a record */>;

}  // namespace

Status Lane::Drain() {
  Record().Wait().IgnoreError();  // the lane's own status says the same
  return status();
}

void Lane::NoteTime(const Clock* clock, TimeNote note) {
  Run([clock, note = std::move(note)]() mutable {
    note(clock->NowNs());
    return OkStatus();
  });
}

// At any time the lane is idle (nothing queued, nothing posted), or exactly one
// of these holds: a turn is posted or running, or the lane is suspended on
// `awaited`, whose completion posts the next turn. So turns never overlap, and
// what only turns touch needs no lock.
struct WorkerLane::Impl : std::enable_shared_from_this<WorkerLane::Impl> {
  Impl(std::string lane_name, Executor* lane_executor, OnFailure callback)
      : name(std::move(lane_name)),
        executor(lane_executor),
        on_failure(std::move(callback)) {}

  void Queue(Operation operation) {
    bool was_idle = false;
    {
      std::lock_guard lock(mutex);
      operations.push_back(std::move(operation));
      was_idle = std::exchange(idle, false);
    }
    if (was_idle) PostTurn();
  }

  void PostTurn() {
    executor->Post([self = shared_from_this()] { self->Turn(); });
  }

  // noexcept: work that throws ends the process; a lane cannot go on past it,
  // and swallowing it would leave others waiting.
  void Turn() noexcept {
    SetRunner(std::this_thread::get_id());
    Absorb(std::exchange(awaited, Event()).status());
    for (int i = 0;; ++i) {
      Operation operation;
      {
        std::lock_guard lock(mutex);
        if (operations.empty()) {
          runner = {};
          idle = true;
          became_idle.notify_all();
          return;
        }
        if (i == kOperationsPerTurn) break;
        operation = operations.PopFront();
      }
      if (!Perform(operation)) return;
    }
    SetRunner({});
    PostTurn();
  }

  // False when the lane was suspended; then nothing of it may be touched, since
  // the next turn may have begun.
  bool Perform(Operation& operation) {
    if (auto* event = std::get_if<Event>(&operation)) {
      return Await(std::move(*event));
    }
    if (auto* work = std::get_if<Work>(&operation)) {
      if (failure.ok()) Absorb((*work)());
      return true;
    }
    if (auto* start = std::get_if<AsyncWork>(&operation)) {
      if (!failure.ok()) return true;
      EventSource source;
      Event finished = source.event();
      (*start)(std::move(source));
      *start = nullptr;  // if it kept the source, that is lost, and known
      return Await(std::move(finished));
    }
    if (auto* asked = std::get_if<TimeAsked>(&operation)) {
      if (failure.ok()) asked->note(asked->clock->NowNs());
      return true;
    }
    std::get<EventSource>(operation).Complete(failure);
    return true;
  }

  // A failed lane still waits: an event recorded later may be what says that
  // memory is free, and must not come before those who use the memory are done.
  bool Await(Event event) {
    if (event.done()) {
      Absorb(event.status());
      return true;
    }
    awaited = event;
    SetRunner({});
    event.OnDone(
        [self = shared_from_this()](const Status&) { self->PostTurn(); });
    return false;
  }

  void Absorb(const Status& status) {
    if (status.ok() || !failure.ok()) return;
    {
      std::lock_guard lock(mutex);
      failure = status;
    }
    if (on_failure) on_failure(status);
  }

  void SetRunner(std::thread::id thread) {
    std::lock_guard lock(mutex);
    runner = thread;
  }

  // From the lane's own work a wait for it would be for itself.
  void CheckNotRunning() {
    std::lock_guard lock(mutex);
    CASTOR_CHECK(runner != std::this_thread::get_id());
  }

  void WaitUntilIdle() {
    std::unique_lock lock(mutex);
    became_idle.wait(lock, [this] { return idle; });
  }

  const std::string name;
  Executor* const executor;
  const OnFailure on_failure;

  Event awaited;   // touched by turns only
  Status failure;  // written by turns, under mutex; turns read it without

  mutable std::mutex mutex;
  std::condition_variable became_idle;
  // All guarded by mutex.
  internal::RingQueue<Operation> operations;
  bool idle = true;
  std::thread::id runner;  // who runs a turn
};

WorkerLane::WorkerLane(std::string name, Executor* executor,
                       OnFailure on_failure)
    : impl_(std::make_shared<Impl>(std::move(name), executor,
                                   std::move(on_failure))) {}

WorkerLane::~WorkerLane() {
  impl_->CheckNotRunning();
  // The long wait, which this thread's EventWaiter may see; then the end of the
  // turn that did the last operation, after which the executor may go.
  Record().Wait().IgnoreError();
  impl_->WaitUntilIdle();
}

void WorkerLane::Wait(const Event& event) {
  if (event.done() && event.status().ok()) return;
  impl_->Queue(event);
}

void WorkerLane::Run(Work work) { impl_->Queue(std::move(work)); }

void WorkerLane::RunAsync(AsyncWork work) { impl_->Queue(std::move(work)); }

void WorkerLane::NoteTime(const Clock* clock, TimeNote note) {
  impl_->Queue(TimeAsked{clock, std::move(note)});
}

Event WorkerLane::Record() {
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->idle) {
      return impl_->failure.ok() ? Event() : Event::Failed(impl_->failure);
    }
  }
  EventSource source;
  Event recorded = source.event();
  impl_->Queue(std::move(source));
  return recorded;
}

Status WorkerLane::status() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->failure;
}

const std::string& WorkerLane::name() const { return impl_->name; }

ThreadLane::ThreadLane(std::string name, OnFailure on_failure)
    : name_(std::move(name)), on_failure_(std::move(on_failure)) {}

void ThreadLane::Wait(const Event& event) { Absorb(event.Wait()); }

void ThreadLane::Run(Work work) {
  if (status_.ok()) Absorb(work());
}

void ThreadLane::RunAsync(AsyncWork work) {
  if (!status_.ok()) return;
  EventSource source;
  const Event finished = source.event();
  work(std::move(source));
  work = nullptr;  // if it kept the source, that is lost, and known
  Absorb(finished.Wait());
}

Event ThreadLane::Record() {
  return status_.ok() ? Event() : Event::Failed(status_);
}

void ThreadLane::Absorb(const Status& status) {
  if (status.ok() || !status_.ok()) return;
  status_ = status;
  if (on_failure_) on_failure_(status_);
}

}  // namespace castor
