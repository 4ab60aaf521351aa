// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PROBE_PROBE_DEVICE_H_
#define CASTOR_TOOLS_COMMANDS_PROBE_PROBE_DEVICE_H_

// The device whose copies `castor probe` measures: a GPU where there is one,
// else one that is simulated.

#include <memory>
#include <optional>
#include <string>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/device.h"
#include "offload/executor.h"

namespace castor {

struct ProbedDevice {
  std::unique_ptr<Device> device;
  bool simulated = false;
  std::string note;  // why it is, where a GPU might have been; else empty
};

// Of `cuda`, which is null in a build without it: GPU `gpu`, or the first one
// where none is named; Unavailable where the named one cannot be had. Simulated
// devices have `capacity`; `simulate` asks for one. All arguments outlive the
// device. Blocks: it starts a GPU's context.
Result<ProbedDevice> OpenProbedDevice(CudaCalls* cuda, std::optional<int> gpu,
                                      bool simulate, Bytes capacity,
                                      Executor* executor);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PROBE_PROBE_DEVICE_H_
