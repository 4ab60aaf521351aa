// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_core.h"

#include <fmt/format.h>

#include <utility>

namespace castor {

CudaCore::CudaCore(CudaCalls* calls, int ordinal, std::string name,
                   Executor* executor, CudaEventWatcher* watcher)
    : calls_(calls),
      ordinal_(ordinal),
      name_(fmt::format("CUDA device {} ({})", ordinal, name)),
      executor_(executor),
      watcher_(watcher) {}

CudaCore::~CudaCore() {
  const Scope scope(*this);
  for (CudaEvent event : events_) calls_->EventDestroy(event);
}

CudaCore::Scope::Scope(const CudaCore& core) : calls_(core.calls()) {
  int current = -1;
  // A thread that never used CUDA has device 0; where even that is not known,
  // the calls to come will say why.
  if (calls_.GetDevice(&current) == kCudaOk && current == core.ordinal()) {
    return;
  }
  before_ = current;
  calls_.SetDevice(core.ordinal());
}

CudaCore::Scope::~Scope() {
  if (before_ >= 0) calls_.SetDevice(before_);
}

std::string CudaCore::Describe(int error, std::string_view call) const {
  return fmt::format("{} of {}: {}", call, name_, calls_->ErrorText(error));
}

Status CudaCore::Check(int error, std::string_view call) {
  if (error == kCudaOk) return OkStatus();
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
  return calls_->EventCreate(event);
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
