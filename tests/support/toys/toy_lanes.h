// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_TOYS_TOY_LANES_H_
#define CASTOR_TESTS_SUPPORT_TOYS_TOY_LANES_H_

// The lanes on which a toy trainer computes, and how its work, which is host
// code, gets at device memory: at once where the host addresses it; as a kernel
// on a stream of the trainer's own where it has a ToyGpu; else through copies,
// in host memory that each lane has for itself. Owner thread only.

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "chunk/base/units.h"
#include "collectives/zero_options.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "offload/memory/slab.h"
#include "tests/support/toys/toy_gpu.h"

namespace castor {

class ToyLanes {
 public:
  // `workers` lanes of the executor, or one of the thread's own where there are
  // none; lanes of the device where the host cannot address its memory, and
  // over streams of `gpu` where there is one, which outlives the lanes.
  // `largest`: bytes of what work touches.
  ToyLanes(const ZeroOptions& options, int workers, Bytes largest,
           ToyGpu* gpu = nullptr);
  // Waits for what was queued.
  ~ToyLanes();
  ToyLanes(const ToyLanes&) = delete;
  ToyLanes& operator=(const ToyLanes&) = delete;

  size_t size() const { return lanes_.size(); }
  Lane& operator[](size_t i) { return *lanes_[i % lanes_.size()]; }

  // Queues `work` on the lane, with device memory to read and to update. Either
  // may be null, and then is for `work`.
  using Work = std::function<void(const void* read, void* updated)>;
  void Run(size_t lane, const void* read, Bytes read_size, void* updated,
           Bytes updated_size, Work work);

 private:
  Device* device_ = nullptr;  // null: the host addresses device memory
  Bytes largest_;
  std::vector<Slab> staging_;  // by lane: what is read, then what is updated
  ToyGpu* gpu_ = nullptr;
  std::vector<CudaStream> streams_;  // by lane, of gpu_
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_TOYS_TOY_LANES_H_
