// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_lane.h"

#include <utility>

#include "offload/cuda/cuda_event.h"
#include "offload/cuda/cuda_event_watcher.h"
#include "offload/lanes/event_access.h"

namespace castor {
namespace {

// What `event` is on this device; null for an event of the host or of another
// device.
CudaEventState* NativeState(const Event& event, const CudaCore* core) {
  internal::EventState* const state = internal::EventAccess::StateOf(event);
  if (state == nullptr || state->device() != core) return nullptr;
  return static_cast<CudaEventState*>(state);
}

}  // namespace

CudaLane::CudaLane(std::shared_ptr<CudaCore> core,
                   std::shared_ptr<CudaLaneControl> control,
                   CudaLaneOptions options)
    : core_(std::move(core)),
      control_(std::move(control)),
      options_(std::move(options)) {}

CudaLane::~CudaLane() {
  Record().Wait().IgnoreError();  // the lane's own status says the same
  if (options_.refused) return;
  {
    // Whoever issued the last operation may not be out of it.
    std::unique_lock lock(mutex_);
    stopped_issuing_.wait(lock, [this] { return !issuing_; });
  }
  if (options_.adopted) return;
  const CudaCore::Scope scope(*core_);
  const int error = core_->calls().StreamDestroy(options_.stream);
  core_->Check(error, "cudaStreamDestroy").IgnoreError();
}

Status CudaLane::status() const { return control_->first_failure(); }

bool CudaLane::Ready(uint64_t sequence) {
  if (core_->failed()) control_->Fail(sequence, core_->status());
  return !control_->failed();
}

Status CudaLane::CheckTakesWork() {
  if (!options_.adopted) return OkStatus();
  return core_->CheckNotCapturing(options_.stream);
}

bool CudaLane::IsCaptured(uint64_t sequence) {
  const Status status = CheckTakesWork();
  if (status.ok()) return false;
  control_->Fail(sequence - 1, status);
  return true;
}

void CudaLane::Wait(const Event& event) {
  // To wait on the device costs less than to ask the device.
  const bool native = NativeState(event, core_.get()) != nullptr;
  if (!native && event.done() && event.status().ok()) return;
  if (options_.refused) {
    std::erase_if(waited_, [](const Event& each) { return each.done(); });
    waited_.push_back(event);
    return;
  }
  if (const std::vector<Event>* const parts =
          internal::EventAccess::StateOf(event)->parts()) {
    for (const Event& part : *parts) Wait(part);
    return;
  }
  const uint64_t sequence = NextSequence();
  if (options_.adopted) {
    MakeAdoptedWait(event, sequence);
  } else if (BeginIssuing()) {
    MakeWait(event, sequence);
    IssueHeld();
  } else {
    Hold([this, event, sequence] { MakeWait(event, sequence); });
  }
}

void CudaLane::MakeWait(const Event& event, uint64_t sequence) {
  if (CudaEventState* const native = NativeState(event, core_.get())) {
    if (native->MakeStreamWait(options_.stream) ==
        CudaEventState::StreamWait::kNotIssued) {
      Pause();
      native->OnIssued([this, event, sequence] {
        Resume([this, event, sequence] { MakeWait(event, sequence); });
      });
      return;
    }
    if (const Status status = native->StatusSoFar(); !status.ok()) {
      control_->Fail(sequence, status);
    }
    return;
  }
  Pause();
  event.OnDone([this, sequence](const Status& status) {
    Resume([this, sequence, status] {
      if (!status.ok()) control_->Fail(sequence, status);
    });
  });
}

void CudaLane::MakeAdoptedWait(const Event& event, uint64_t sequence) {
  if (IsCaptured(sequence)) return;
  Status status;
  if (CudaEventState* const native = NativeState(event, core_.get())) {
    native->WaitUntilIssued();
    native->MakeStreamWait(options_.stream);
    status = native->StatusSoFar();
  } else {
    status = event.Wait();
  }
  if (!status.ok()) control_->Fail(sequence, status);
}

Event CudaLane::Record() {
  if (options_.refused) {
    std::vector<Event> events = {Event::Failed(status())};
    events.insert(events.end(), waited_.begin(), waited_.end());
    return AllOf(events);
  }
  if (!options_.adopted) {
    if (sequence_ == 0) return Event();
    if (NativeState(last_event_, core_.get()) != nullptr) return last_event_;
  }
  const uint64_t sequence = NextSequence();
  if (IsCaptured(sequence)) return Event::Failed(control_->StatusAt(sequence));
  auto state = std::make_shared<CudaEventState>(core_, control_, sequence);
  const auto issue = [this, state, sequence] {
    if (core_->failed()) control_->Fail(sequence - 1, core_->status());
    state->Issue(options_.stream);
  };
  if (options_.adopted) {
    issue();
  } else if (BeginIssuing()) {
    issue();
    IssueHeld();
  } else {
    Hold(issue);
  }
  last_event_ = internal::EventAccess::Make(state);
  return last_event_;
}

void CudaLane::Run(Work work) {
  RunAsync([work = std::move(work)](EventSource source) mutable {
    Status status = work();
    work = nullptr;  // what it held goes before what comes next
    source.Complete(std::move(status));
  });
}

void CudaLane::RunAsync(AsyncWork work) {
  if (control_->failed()) return;
  if (options_.adopted) return RunHere(std::move(work));
  EventSource source;
  const Event finished = source.event();
  Record().OnDone([executor = core_->executor(), work = std::move(work),
                   source = std::move(source)](const Status& status) mutable {
    if (!status.ok()) {
      source.Complete(status);
      return;
    }
    // noexcept: work that throws ends the process.
    executor->Post([work = std::move(work),
                    source = std::move(source)]() mutable noexcept {
      work(std::move(source));
      work = nullptr;  // if it kept the source, that is lost, and known
    });
  });
  Wait(finished);
}

void CudaLane::RunHere(AsyncWork work) {
  // Of what failed before, the lane knows by now.
  if (!Record().Wait().ok()) return;
  EventSource source;
  const Event finished = source.event();
  work(std::move(source));
  Wait(finished);
}

void CudaLane::NoteTime(const Clock* clock, TimeNote note) {
  Queue("cudaEventRecord", [core = core_, control = control_.get(), clock,
                            note = std::move(note)](CudaStream stream) mutable {
    return core->times().Note(control, stream, clock, std::move(note));
  });
}

bool CudaLane::BeginIssuing() {
  std::lock_guard lock(mutex_);
  if (issuing_ || paused_ || !held_.empty()) return false;
  issuing_ = true;
  return true;
}

void CudaLane::Hold(Executor::Task operation) {
  {
    std::lock_guard lock(mutex_);
    held_.push_back(std::move(operation));
    if (issuing_ || paused_) return;
    issuing_ = true;
  }
  IssueHeld();
}

// The caller has set issuing_.
void CudaLane::IssueHeld() {
  std::unique_lock lock(mutex_);
  while (!held_.empty() && !paused_) {
    Executor::Task operation = std::move(held_.front());
    held_.pop_front();
    lock.unlock();
    operation();
    operation = nullptr;
    lock.lock();
  }
  issuing_ = false;
  stopped_issuing_.notify_all();
}

void CudaLane::Pause() {
  std::lock_guard lock(mutex_);
  paused_ = true;
}

// Not on the calling thread, which completes an event and is not to be held up.
// The lane is there: its destructor waits for an event that comes after this.
void CudaLane::Resume(Executor::Task first) {
  core_->watcher()->Post([this, first = std::move(first)]() mutable {
    {
      std::lock_guard lock(mutex_);
      held_.push_front(std::move(first));
      paused_ = false;
      if (issuing_) return;  // who issues goes on
      issuing_ = true;
    }
    IssueHeld();
  });
}

}  // namespace castor
