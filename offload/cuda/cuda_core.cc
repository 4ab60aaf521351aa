// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_core.h"

#include <fmt/format.h>

#include <utility>

namespace castor {

CudaCore::CudaCore(CudaCalls* calls, int ordinal, CudaContext context,
                   std::string name, Executor* executor,
                   CudaEventWatcher* watcher)
    : calls_(calls),
      ordinal_(ordinal),
      context_(context),
      name_(fmt::format("CUDA device {} ({})", ordinal, name)),
      executor_(executor),
      watcher_(watcher) {}

CudaCore::~CudaCore() {
  {
    const Scope scope(*this);
    for (CudaEvent event : events_) calls_->EventDestroy(event);
    times_.Clear();
  }
  calls_->ReleaseContext(ordinal_);
}

// Where the context cannot be bound, the calls to come say why.
CudaCore::Scope::Scope(const CudaCore& core) : calls_(core.calls()) {
  CudaContext current = nullptr;
  if (calls_.GetContext(&current) != kCudaOk || current != core.context_) {
    pushed_ = calls_.PushContext(core.context_) == kCudaOk;
  }
  calls_.ExchangeCaptureMode(&mode_);
}

CudaCore::Scope::~Scope() {
  calls_.ExchangeCaptureMode(&mode_);
  if (pushed_) calls_.PopContext();
}

int CudaCore::MakeCurrent() const {
  auto mode = CudaCaptureMode::kRelaxed;
  calls_->ExchangeCaptureMode(&mode);
  CudaContext current = nullptr;
  if (calls_->GetContext(&current) == kCudaOk && current == context_) {
    return kCudaOk;
  }
  return calls_->PushContext(context_);
}

std::string CudaCore::Describe(int error, std::string_view call) const {
  return fmt::format("{} of {}: {}", call, name_, calls_->ErrorText(error));
}

Status CudaCore::Check(int error, std::string_view call) {
  if (error == kCudaOk) return OkStatus();
  if (error >= kCudaCaptureUnsupported && error <= kCudaCaptureWrongThread) {
    return FailedPrecondition(
        fmt::format("{}. A CUDA graph is being captured, and Castor's work "
                    "belongs in none: end the capture first",
                    Describe(error, call)));
  }
  std::lock_guard lock(mutex_);
  if (failure_.ok()) {
    failure_ = IoError(fmt::format(
        "{}. Work queued earlier may be the cause: CUDA reports a kernel's "
        "failure at a later call. The process cannot use the device any more; "
        "start it again, under compute-sanitizer or with "
        "CUDA_LAUNCH_BLOCKING=1 to see where it fails",
        Describe(error, call)));
    failed_.store(true, std::memory_order_release);
  }
  return failure_;
}

Status CudaCore::CheckNotCapturing(CudaStream stream) {
  const Scope scope(*this);
  bool capturing = false;
  const int error = calls_->StreamIsCapturing(stream, &capturing);
  return Check(error == kCudaOk && capturing ? kCudaCaptureUnsupported : error,
               "cudaStreamIsCapturing");
}

Status CudaCore::status() const {
  if (!failed()) return OkStatus();
  std::lock_guard lock(mutex_);
  return failure_;
}

int CudaCore::TakeEvent(CudaEvent* event) {
  {
    std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      *event = events_.back();
      events_.pop_back();
      return kCudaOk;
    }
    ++events_created_;
  }
  const Scope scope(*this);
  return calls_->EventCreate(CudaCalls::EventTimes::kNone, event);
}

void CudaCore::GiveEvent(CudaEvent event) {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
}

int64_t CudaCore::events_created() const {
  std::lock_guard lock(mutex_);
  return events_created_;
}

}  // namespace castor
