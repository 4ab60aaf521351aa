// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_TOYS_TOY_GPU_H_
#define CASTOR_TESTS_SUPPORT_TOYS_TOY_GPU_H_

// A GPU as a trainer has it: streams of the trainer's own, on which the trainer
// launches its kernels, and a device of Castor's beside them. Owner thread
// only.

#include <cstdint>
#include <functional>
#include <vector>

#include "offload/cuda/cuda_calls.h"
#include "offload/cuda/cuda_device.h"
#include "tests/support/fakes/fake_cuda.h"

namespace castor {

struct ToyGpuOptions {
  int hardware_queues = 0;  // as FakeCudaOptions has them
  // Kernels without effect that the trainer launches behind each of its own.
  int launches = 0;
  // One in so many of the trainer's kernels was not launched before, and is
  // loaded at its launch; 0: none.
  int loads_each = 0;
};

class ToyGpu {
 public:
  // `device` is the one of `cuda` with this ordinal; both outlive the GPU.
  ToyGpu(FakeCuda* cuda, CudaDevice* device, int ordinal,
         const ToyGpuOptions& options = {})
      : cuda_(cuda), device_(device), ordinal_(ordinal), options_(options) {}
  // Lanes over its streams are gone by then.
  ~ToyGpu();
  ToyGpu(const ToyGpu&) = delete;
  ToyGpu& operator=(const ToyGpu&) = delete;

  FakeCuda& cuda() { return *cuda_; }
  CudaDevice& device() { return *device_; }
  CudaStream MakeStream();
  // A kernel of the trainer's that reads and writes memory of the device: it is
  // told where the device has them.
  using Kernel = std::function<void(const void* read, void* updated)>;
  void Launch(CudaStream stream, const void* read, void* updated,
              Kernel kernel);

 private:
  FakeCuda* const cuda_;
  CudaDevice* const device_;
  const int ordinal_;
  const ToyGpuOptions options_;
  int64_t launched_ = 0;
  std::vector<CudaStream> streams_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_TOYS_TOY_GPU_H_
