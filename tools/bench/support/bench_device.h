// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_BENCH_SUPPORT_BENCH_DEVICE_H_
#define CASTOR_TOOLS_BENCH_SUPPORT_BENCH_DEVICE_H_

// The device that a benchmark runs on: the GPU, or the simulated device where
// CASTOR_BENCH_DEVICE=simulated is set. Thread-compatible.

#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "chunk/base/status.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"

namespace castor {

// Of a call of CUDA. Ends the process where it failed.
void MustSucceed(int error);

class BenchDevice {
 public:
  static bool IsSimulated();
  // Null, and the benchmark skipped with the reason, where there is no GPU, or
  // no CUDA in this build. The lane is Castor's own, or over a stream such as a
  // trainer makes where `adopted`, and the device has streams.
  static std::unique_ptr<BenchDevice> Open(benchmark::State& state,
                                           bool adopted = false);
  ~BenchDevice();

  Device& device() { return *device_; }
  Lane& lane() { return *lane_; }
  void Drain();
  // Lives as long as this. Null where the device has no streams.
  CudaStream MakeStream();

  ThreadPool pool{4};

 private:
  std::unique_ptr<Device> device_;
  std::vector<CudaStream> streams_;
  std::unique_ptr<Lane> lane_;
};

}  // namespace castor

#endif  // CASTOR_TOOLS_BENCH_SUPPORT_BENCH_DEVICE_H_
