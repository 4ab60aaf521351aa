// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/bench/support/bench_device.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/cuda/cuda_device.h"
#include "offload/cuda/cuda_runtime_calls.h"
#include "offload/twin/simulated_device.h"

namespace castor {

void MustSucceed(int error) { CASTOR_CHECK_EQ(error, kCudaOk); }

bool BenchDevice::IsSimulated() {
  const char* const device = std::getenv("CASTOR_BENCH_DEVICE");
  return device != nullptr && std::string_view(device) == "simulated";
}

std::unique_ptr<BenchDevice> BenchDevice::Open(benchmark::State& state,
                                               bool adopted) {
  auto bench = std::make_unique<BenchDevice>();
  if (IsSimulated()) {
    bench->device_ = std::make_unique<SimulatedDevice>(
        SimulatedDeviceOptions{.capacity = GiB(2), .executor = &bench->pool});
  } else if (CudaRuntimeCalls() == nullptr) {
    state.SkipWithError("no CUDA in this build: --config=cuda makes one");
    return nullptr;
  } else {
    auto gpu = CudaDevice::Open(CudaRuntimeCalls(), {.executor = &bench->pool});
    if (!gpu.ok()) {
      state.SkipWithError(gpu.status().ToString().c_str());
      return nullptr;
    }
    bench->device_ = *std::move(gpu);
  }
  const CudaStream stream = adopted ? bench->MakeStream() : nullptr;
  bench->lane_ = stream != nullptr
                     ? *bench->device().AdoptStream(stream, "trainer")
                     : bench->device().MakeLane("compute");
  return bench;
}

BenchDevice::~BenchDevice() {
  lane_ = nullptr;
  for (const CudaStream stream : streams_) {
    MustSucceed(CudaRuntimeCalls()->StreamDestroy(stream));
  }
}

void BenchDevice::Drain() { CASTOR_CHECK(lane_->Drain().ok()); }

CudaStream BenchDevice::MakeStream() {
  if (IsSimulated()) return nullptr;
  MustSucceed(CudaRuntimeCalls()->StreamCreate(&streams_.emplace_back()));
  return streams_.back();
}

}  // namespace castor
