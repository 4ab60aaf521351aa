// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_CUDA_CONTROL_POOL_H_
#define CASTOR_OFFLOAD_CUDA_CUDA_CONTROL_POOL_H_

// Hands out the pinned words of lanes (cuda_lane_control.h), from pages that
// are registered with the driver one after the other as lanes are made, and
// never in a step. Held by what it handed out. Thread-safe. Part of the CUDA
// device (cuda_device.h).

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "chunk/base/status.h"
#include "offload/cuda/cuda_core.h"
#include "offload/cuda/cuda_lane_control.h"
#include "offload/slab.h"

namespace castor {

class CudaControlPool : public std::enable_shared_from_this<CudaControlPool> {
 public:
  struct Words {
    std::shared_ptr<CudaControlWords> on_host;
    // As the device sees them; null where the driver registers no memory.
    void* on_device = nullptr;
  };

  CudaControlPool(std::shared_ptr<CudaCore> core, HostSlabOptions options)
      : core_(std::move(core)), options_(std::move(options)) {}

  // Fresh words. Blocks while the device works, when a page must be made.
  Result<Words> Take();

 private:
  struct Free {
    std::byte* on_host;
    void* on_device;
  };

  Status AddPage();

  const std::shared_ptr<CudaCore> core_;
  const HostSlabOptions options_;
  std::mutex mutex_;
  std::vector<Slab> pages_;  // guarded by mutex_
  std::vector<Free> free_;   // guarded by mutex_
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_CUDA_CONTROL_POOL_H_
