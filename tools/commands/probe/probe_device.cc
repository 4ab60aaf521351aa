// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/probe/probe_device.h"

#include <fmt/format.h>

#include <utility>

#include "offload/cuda/cuda_device.h"
#include "offload/simulated_device.h"

namespace castor {

Result<ProbedDevice> OpenProbedDevice(CudaCalls* cuda, std::optional<int> gpu,
                                      bool simulate, Bytes capacity,
                                      Executor* executor) {
  ProbedDevice probed;
  if (cuda == nullptr && gpu) {
    return Unavailable(fmt::format(
        "--gpu {} needs CUDA, and this build has none: where the CUDA toolkit "
        "is installed, build it with bazel build --config=cuda //tools:castor",
        *gpu));
  }
  if (cuda != nullptr && !simulate) {
    auto device = CudaDevice::Open(
        cuda, {.ordinal = gpu.value_or(0), .executor = executor});
    if (device.ok()) {
      probed.device = *std::move(device);
      return probed;
    }
    if (gpu) return device.status();
    probed.note =
        fmt::format("the device is simulated: {}", device.status().message());
  }
  probed.simulated = true;
  probed.device = std::make_unique<SimulatedDevice>(
      SimulatedDeviceOptions{.capacity = capacity, .executor = executor});
  return probed;
}

}  // namespace castor
