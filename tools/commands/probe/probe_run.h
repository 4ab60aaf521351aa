// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PROBE_PROBE_RUN_H_
#define CASTOR_TOOLS_COMMANDS_PROBE_PROBE_RUN_H_

// From what `castor probe` was asked for to what it measured, and how it says
// so. Owner thread only.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/host/machine_topology.h"
#include "placement/tier_model.h"
#include "tools/cli/console.h"
#include "tools/cli/text/document.h"
#include "tools/measure/samples.h"

namespace castor {

struct ProbeRequest {
  std::vector<std::string> nvme;  // values of --nvme
  bool quick = false;
  std::optional<Bytes> size;
  std::optional<int64_t> gpu;  // as CUDA counts; none: the first there is
  bool no_gpu = false;         // but a simulated one
  std::string output;
};

// A link or a collective, or a rate of memory or the optimizer.
struct Measured {
  std::string name;   // its key in the machine file
  std::string words;  // for people
  int64_t bytes_per_second = 0;
  // How far the worst median is from the line, as LineFit has it; of a rate, as
  // SpreadOf() has it.
  double error = 0;
  int64_t latency_ns = 0;              // of a collective, of one step
  std::vector<TimedSize> points = {};  // of a collective, by the whole chunk
  int samples = 0;                     // of a rate
};

struct MeasuredNvme {
  std::vector<std::string> folders;
  std::string queue;     // "io_uring" or "threads"
  bool direct = false;   // O_DIRECT on every drive
  Bytes verified_bytes;  // read and found as written
};

// What the machine file could hold, and does not.
struct Unmeasured {
  std::string what;
  std::string why;
};

struct ProbeReport {
  TierModel model;
  std::vector<Measured> links;
  std::vector<Measured> rates;
  std::vector<Unmeasured> unmeasured;
  std::optional<MeasuredNvme> nvme;
  std::optional<internal::MachineTopology> topology;
  std::string instruction_set;
  std::string device;
  bool device_is_simulated = true;
  int ranks = 0;         // of the collectives
  Bytes size;            // of the buffers
  bool stopped = false;  // by the user: what follows was not measured
  bool failed = false;   // something asked for could not be measured
  std::string output;    // the file that was written; empty: none
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

// Schema "castor.probe/1", with the machine file in it.
Document ProbeDocument(const ProbeReport& report);

// StoppedEarly or Unavailable where not all that was asked for is in the
// report.
Status ProbeStatus(const ProbeReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PROBE_PROBE_RUN_H_
