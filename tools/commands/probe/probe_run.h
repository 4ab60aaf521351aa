// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PROBE_PROBE_RUN_H_
#define CASTOR_TOOLS_COMMANDS_PROBE_PROBE_RUN_H_

// From what `castor probe` was asked for to what it measured. Owner thread
// only.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/cuda/cuda_calls.h"
#include "tools/cli/console.h"
#include "tools/commands/probe/probe_report.h"

namespace castor {

struct ProbeRequest {
  std::vector<std::string> nvme;  // values of --nvme
  bool quick = false;
  std::optional<Bytes> size;
  std::optional<int64_t> gpu;  // as CUDA counts; none: the first there is
  bool no_gpu = false;         // but a simulated one
  std::string output;
  bool json = false;
};

// Measures, and writes the machine file where one is asked for. `cuda` is null
// where the build has none (offload/cuda/cuda_runtime_calls.h). Fails, with
// nothing measured and nothing left behind, where a drive, the memory or a GPU
// that was named cannot be had. Where `stop` (may be empty) says so while it
// works, it ends with what was measured whole, and the report says that it was
// stopped. Progress and notes go to `console.err`.
Result<ProbeReport> RunProbe(const ProbeRequest& request, CudaCalls* cuda,
                             const std::function<bool()>& stop,
                             const Console& console);

// StoppedEarly or Unavailable where not all that was asked for is in the
// report.
Status ProbeStatus(const ProbeReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PROBE_PROBE_RUN_H_
