// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/c_api/engine/turn.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "collectives/c_api/castor.h"

namespace castor::c_api {
namespace {

// Whose callback the thread is in; null: none.
thread_local const Turns* t_in_callback = nullptr;

constexpr std::chrono::milliseconds kAskEvery{100};

std::atomic<int64_t> generation_of_process = 0;

struct Interrupt {
  std::mutex mutex;
  int32_t (*function)(void*) = nullptr;  // guarded by mutex
  void* context = nullptr;               // guarded by mutex
  std::atomic<bool> set = false;
};

Interrupt& TheInterrupt() {
  static Interrupt interrupt;
  return interrupt;
}

}  // namespace

int64_t ForkGeneration() {
  // Once for the library: the handler goes when the library is unloaded.
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { ++generation_of_process; });
  static_cast<void>(registered);
  return generation_of_process;
}

Status CheckProcess(int64_t generation) {
  if (generation == generation_of_process) return OkStatus();
  return FailedPrecondition(
      "this process was forked from the one that made the world, whose threads "
      "did not follow: make a world in this process, or use the engine where "
      "it was made");
}

void SetInterrupt(int32_t (*interrupt)(void* context), void* context) {
  Interrupt& the = TheInterrupt();
  std::lock_guard lock(the.mutex);
  the.function = interrupt;
  the.context = context;
  the.set = interrupt != nullptr;
}

bool HasInterrupt() { return TheInterrupt().set; }

Status InterruptedError() {
  return Aborted("the program interrupted a call that waited");
}

bool Interrupted() {
  Interrupt& the = TheInterrupt();
  int32_t (*function)(void*) = nullptr;
  void* context = nullptr;
  {
    std::lock_guard lock(the.mutex);
    function = the.function;
    context = the.context;
  }
  if (function == nullptr) return false;
  int32_t answer = 1;  // also where it throws
  RunNotice("interrupt", [&] { answer = function(context); });
  return answer != 0;
}

InterruptibleWaits::InterruptibleWaits(std::function<void()> end)
    : end_(std::move(end)), before_(Exchange(this)) {}

InterruptibleWaits::~InterruptibleWaits() { Exchange(before_); }

void InterruptibleWaits::WaitFor(const Event& event) {
  struct Done {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;  // guarded by mutex
  };
  const auto done = std::make_shared<Done>();
  event.OnDone([done](const Status&) {
    {
      const std::lock_guard lock(done->mutex);
      done->done = true;
    }
    // Unlocked: the thread that is woken would only wait for the lock.
    done->changed.notify_all();
  });
  std::unique_lock lock(done->mutex);
  while (!done->changed.wait_for(lock, kAskEvery, [&] { return done->done; })) {
    lock.unlock();
    if (!ended_ && Interrupted()) {
      ended_ = true;
      end_();
    }
    lock.lock();
  }
}

InCallback::InCallback(const Turns* turns)
    : before_(std::exchange(t_in_callback, turns)) {}
InCallback::~InCallback() { t_in_callback = before_; }

Status Turns::Take() {
  std::unique_lock lock(mutex_);
  if (holder_ == std::this_thread::get_id() || t_in_callback == this) {
    return FailedPrecondition(
        "the call comes from a callback that another call on this engine runs: "
        "callbacks call nothing on the engine they serve");
  }
  const auto is_free = [this] { return holder_ == std::thread::id(); };
  while (!free_.wait_for(lock, kAskEvery, is_free)) {
    lock.unlock();
    if (Interrupted()) {
      return Aborted(
          "the program interrupted the call, which waited for another one on "
          "the same engine");
    }
    lock.lock();
  }
  holder_ = std::this_thread::get_id();
  return OkStatus();
}

void Turns::GiveBack() {
  {
    const std::lock_guard lock(mutex_);
    holder_ = std::thread::id();
  }
  free_.notify_one();
}

}  // namespace castor::c_api

extern "C" void castor_set_interrupt(int32_t (*interrupt)(void* context),
                                     void* context) {
  castor::c_api::SetInterrupt(interrupt, context);
}
