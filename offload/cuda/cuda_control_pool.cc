// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_control_pool.h"

#include <new>
#include <utility>

#include "chunk/base/units.h"
#include "offload/cuda/pinned_slab.h"

namespace castor {
namespace {

constexpr Bytes kPage = KiB(4);

}  // namespace

Result<CudaControlPool::Words> CudaControlPool::Take() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) CASTOR_RETURN_IF_ERROR(AddPage());
  const Free taken = free_.back();
  free_.pop_back();
  return Words{.on_host = std::shared_ptr<CudaControlWords>(
                   new (taken.on_host) CudaControlWords,
                   [pool = shared_from_this(), taken](CudaControlWords*) {
                     std::lock_guard giving(pool->mutex_);
                     pool->free_.push_back(taken);
                   }),
               .on_device = taken.on_device};
}

Status CudaControlPool::AddPage() {
  HostSlabFacts facts;
  CASTOR_ASSIGN_OR_RETURN(Slab page,
                          MakePinnedSlab(core_, kPage, options_, &facts));
  void* on_device = nullptr;
  if (facts.registered) {
    const CudaCore::Scope scope(*core_);
    CASTOR_RETURN_IF_ERROR(core_->Check(
        core_->calls().HostGetDevicePointer(page.data(), &on_device),
        "cudaHostGetDevicePointer"));
  }
  constexpr int64_t kSize = sizeof(CudaControlWords);
  for (int64_t at = 0; at + kSize <= kPage.count(); at += kSize) {
    free_.push_back(
        {page.data() + at, on_device == nullptr
                               ? nullptr
                               : static_cast<std::byte*>(on_device) + at});
  }
  pages_.push_back(std::move(page));
  return OkStatus();
}

}  // namespace castor
