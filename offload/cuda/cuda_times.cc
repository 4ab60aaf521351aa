// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_times.h"

#include <cmath>
#include <utility>

#include "offload/cuda/cuda_core.h"

namespace castor {
namespace {

constexpr int64_t kBaseLastsNs = 10'000'000'000;
// A lane with more points than this reads the oldest ones.
constexpr size_t kUnread = 64;

}  // namespace

int CudaTimes::Note(const void* lane, CudaStream stream, const Clock* clock,
                    TimeNote note) {
  std::vector<Told> told;
  int error = kCudaOk;
  {
    std::lock_guard lock(mutex_);
    const bool has_base = !bases_.empty() && bases_.back()->clock == clock;
    if (!has_base || clock->NowNs() - bases_.back()->at_ns > kBaseLastsNs) {
      error = MakeBase(clock);
      if (error != kCudaOk) return error;
    }
    Point point;
    error = TakeEvent(&point.event);
    if (error != kCudaOk) return error;
    error = core_.calls().EventRecord(point.event, stream);
    if (error != kCudaOk) {
      free_.push_back(point.event);
      return error;
    }
    point.base = bases_.back();
    point.note = std::move(note);
    std::deque<Point>& points = points_[lane];
    points.push_back(std::move(point));
    if (points.size() > kUnread) error = Read(points, false, &told);
  }
  // Outside the lock: who is told may queue more.
  for (Told& each : told) each.note(each.at_ns);
  return error;
}

void CudaTimes::Finish() {
  std::vector<Told> told;
  int error = kCudaOk;
  {
    const CudaCore::Scope scope(core_);
    std::lock_guard lock(mutex_);
    for (auto& [lane, points] : points_) {
      if (error == kCudaOk) error = Read(points, true, &told);
    }
    std::erase_if(points_,
                  [](const auto& each) { return each.second.empty(); });
    DropBases();
  }
  // A failure of the device, which has it now.
  core_.Check(error, "cudaEventElapsedTime").IgnoreError();
  for (Told& each : told) each.note(each.at_ns);
}

void CudaTimes::Clear() {
  CudaCalls& calls = core_.calls();
  for (const auto& [lane, points] : points_) {
    for (const Point& point : points) calls.EventDestroy(point.event);
  }
  points_.clear();
  for (const auto& base : bases_) calls.EventDestroy(base->event);
  bases_.clear();
  for (const CudaEvent event : free_) calls.EventDestroy(event);
  free_.clear();
  if (stream_ != nullptr) calls.StreamDestroy(std::exchange(stream_, nullptr));
}

int CudaTimes::TakeEvent(CudaEvent* event) {
  if (free_.empty()) {
    return core_.calls().EventCreate(CudaCalls::EventTimes::kTaken, event);
  }
  *event = free_.back();
  free_.pop_back();
  return kCudaOk;
}

int CudaTimes::MakeBase(const Clock* clock) {
  CudaCalls& calls = core_.calls();
  if (stream_ == nullptr) {
    if (const int error = calls.StreamCreate(&stream_); error != kCudaOk) {
      stream_ = nullptr;
      return error;
    }
  }
  auto base = std::make_shared<Base>();
  int error = TakeEvent(&base->event);
  if (error != kCudaOk) return error;
  error = calls.EventRecord(base->event, stream_);
  if (error == kCudaOk) error = calls.EventSynchronize(base->event);
  if (error != kCudaOk) {
    free_.push_back(base->event);
    return error;
  }
  base->at_ns = clock->NowNs();
  base->clock = clock;
  bases_.push_back(std::move(base));
  DropBases();
  return kCudaOk;
}

// Those that no point is measured from any more.
void CudaTimes::DropBases() {
  while (bases_.size() > 1 && bases_.front().use_count() == 1) {
    free_.push_back(bases_.front()->event);
    bases_.erase(bases_.begin());
  }
}

int CudaTimes::Read(std::deque<Point>& points, bool waits,
                    std::vector<Told>* told) {
  CudaCalls& calls = core_.calls();
  while (!points.empty()) {
    Point& point = points.front();
    int error = waits ? calls.EventSynchronize(point.event)
                      : calls.EventQuery(point.event);
    if (error == kCudaNotReady) return kCudaOk;
    float milliseconds = 0;
    if (error == kCudaOk) {
      error = calls.EventElapsed(point.base->event, point.event, &milliseconds);
    }
    if (error != kCudaOk) return error;
    told->push_back(
        {std::move(point.note),
         point.base->at_ns + std::llround(double{milliseconds} * 1e6)});
    free_.push_back(point.event);
    points.pop_front();
  }
  return kCudaOk;
}

}  // namespace castor
