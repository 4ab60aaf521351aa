// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_event.h"

#include <utility>

#include "chunk/base/check.h"
#include "offload/cuda/cuda_event_watcher.h"

namespace castor {

CudaEventState::CudaEventState(std::shared_ptr<CudaCore> core,
                               std::shared_ptr<CudaLaneControl> control,
                               uint64_t sequence)
    : EventState(core.get()),
      core_(std::move(core)),
      control_(std::move(control)),
      sequence_(sequence) {}

CudaEventState::~CudaEventState() {
  // Not known done, and nobody asks any more. Recording it anew is safe: a
  // stream that waits for it took note of this record when it was told to.
  if (event_ != nullptr) core_->GiveEvent(event_);
}

void CudaEventState::Issue(CudaStream stream) {
  std::vector<Executor::Task> tasks;
  {
    std::unique_lock lock(mutex_);
    CASTOR_CHECK(!issued_);
    const CudaCore::Scope scope(*core_);
    int error = core_->TakeEvent(&event_);
    if (error != kCudaOk) {
      event_ = nullptr;
      Resolve(error, "cudaEventCreate", lock);
    } else if (error = core_->calls().EventRecord(event_, stream);
               error != kCudaOk) {
      Resolve(error, "cudaEventRecord", lock);
    }
    issued_ = true;
    tasks.swap(on_issued_);
    changed_.notify_all();
  }
  for (Executor::Task& task : tasks) task();
}

void CudaEventState::WaitUntilIssued() {
  {
    std::lock_guard lock(mutex_);
    if (issued_) return;
  }
  // As an event of the host, so that whoever ends waits ends this one too.
  const EventSource issued;
  OnIssued([issued] { issued.Complete(); });
  issued.event().Wait().IgnoreError();  // it cannot fail
}

void CudaEventState::OnIssued(Executor::Task task) {
  {
    std::lock_guard lock(mutex_);
    if (!issued_) {
      on_issued_.push_back(std::move(task));
      return;
    }
  }
  task();
}

CudaEventState::StreamWait CudaEventState::MakeStreamWait(CudaStream stream) {
  std::lock_guard lock(mutex_);
  if (known_done()) return StreamWait::kDone;
  if (!issued_) return StreamWait::kNotIssued;
  const CudaCore::Scope scope(*core_);
  core_
      ->Check(core_->calls().StreamWaitEvent(stream, event_),
              "cudaStreamWaitEvent")
      .IgnoreError();  // the device has it, and the lane looks there
  return StreamWait::kQueued;
}

bool CudaEventState::Poll() {
  std::unique_lock lock(mutex_);
  if (known_done()) return true;
  if (!issued_) return false;
  const CudaCore::Scope scope(*core_);
  const int error = core_->calls().EventQuery(event_);
  if (error == kCudaNotReady) return false;
  Resolve(error, "cudaEventQuery", lock);
  return true;
}

void CudaEventState::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return issued_; });
  while (!known_done()) {
    ++blocked_;
    const CudaEvent event = event_;
    lock.unlock();
    int error = kCudaOk;
    {
      const CudaCore::Scope scope(*core_);
      error = core_->calls().EventSynchronize(event);
    }
    lock.lock();
    --blocked_;
    Resolve(error, "cudaEventSynchronize", lock);
  }
}

void CudaEventState::Resolve(int error, std::string_view call,
                             std::unique_lock<std::mutex>& lock) {
  if (!known_done() && error != kCudaOk) {
    const Status failure = core_->Check(error, call);
    // Reported before the event ends, and outside the lock: who is told may ask
    // this event. What the lane did is not known to have been done.
    lock.unlock();
    control_->Fail(0, failure);
    lock.lock();
  }
  if (!known_done()) SetDone(control_->StatusAt(sequence_));
  if (event_ != nullptr && blocked_ == 0) {
    core_->GiveEvent(std::exchange(event_, nullptr));
  }
}

void CudaEventState::OnDone(Callback callback) {
  // Asked first: what the device has passed needs no thread to say so, also
  // when the device has gone.
  const bool is_done = done();
  {
    std::lock_guard lock(mutex_);
    if (!is_done || watched_) {
      callbacks_.push_back(std::move(callback));
      if (watched_) return;
      watched_ = true;
      core_->watcher()->Watch(shared_from_this());
      return;
    }
  }
  callback(status());
}

bool CudaEventState::Serve() {
  if (!done()) return false;
  std::unique_lock lock(mutex_);
  while (!callbacks_.empty()) {
    std::vector<Callback> to_call;
    to_call.swap(callbacks_);
    lock.unlock();
    for (Callback& callback : to_call) callback(status());
    lock.lock();
  }
  watched_ = false;
  return true;
}

}  // namespace castor
