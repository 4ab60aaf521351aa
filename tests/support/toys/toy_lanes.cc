// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/toys/toy_lanes.h"

#include <algorithm>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/status.h"

namespace castor {

ToyLanes::ToyLanes(const ZeroOptions& options, int workers, Bytes largest,
                   ToyGpu* gpu)
    : largest_(RoundUp(largest, KiB(4))), gpu_(gpu) {
  for (int i = 0; gpu != nullptr && i < std::max(workers, 1); ++i) {
    streams_.push_back(gpu->MakeStream());
    auto lane = gpu->device().AdoptStream(streams_.back(), "toy compute");
    CASTOR_CHECK(lane.ok());
    lanes_.push_back(*std::move(lane));
  }
  if (gpu != nullptr) return;
  if (options.device != nullptr && !options.device->facts().host_addressable) {
    device_ = options.device;
  }
  for (int i = 0; i < std::max(workers, 1); ++i) {
    if (device_ != nullptr) {
      Result<Slab> staging = device_->MakeHostSlab(largest_ * 2, {});
      CASTOR_CHECK(staging.ok());
      staging_.push_back(*std::move(staging));
      lanes_.push_back(device_->MakeLane("toy compute"));
    } else if (workers == 0) {
      lanes_.push_back(std::make_unique<ThreadLane>("toy compute"));
    } else {
      lanes_.push_back(
          std::make_unique<WorkerLane>("toy compute", options.executor));
    }
  }
}

ToyLanes::~ToyLanes() {
  for (const auto& lane : lanes_) lane->Drain().IgnoreError();
}

void ToyLanes::Run(size_t lane, const void* read, Bytes read_size,
                   void* updated, Bytes updated_size, Work work) {
  if (gpu_ != nullptr) {
    gpu_->Launch(streams_[lane % streams_.size()], read, updated,
                 std::move(work));
    return;
  }
  Lane& on = (*this)[lane];
  if (device_ == nullptr) {
    on.Run([read, updated, work = std::move(work)] {
      work(read, updated);
      return OkStatus();
    });
    return;
  }
  CASTOR_CHECK_LE(read_size, largest_);
  CASTOR_CHECK_LE(updated_size, largest_);
  std::byte* const copy = staging_[lane % lanes_.size()].data();
  std::byte* const result = copy + largest_.count();
  if (read != nullptr) {
    device_->Copy(on, copy, static_cast<const std::byte*>(read), read_size,
                  CopyKind::kFromDevice);
  }
  if (updated != nullptr) {
    device_->Copy(on, result, static_cast<const std::byte*>(updated),
                  updated_size, CopyKind::kFromDevice);
  }
  on.Run([copy = read == nullptr ? nullptr : copy,
          result = updated == nullptr ? nullptr : result,
          work = std::move(work)] {
    work(copy, result);
    return OkStatus();
  });
  if (updated != nullptr) {
    device_->Copy(on, static_cast<std::byte*>(updated), result, updated_size,
                  CopyKind::kToDevice);
  }
}

}  // namespace castor
