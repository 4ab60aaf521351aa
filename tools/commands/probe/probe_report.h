// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PROBE_PROBE_REPORT_H_
#define CASTOR_TOOLS_COMMANDS_PROBE_PROBE_REPORT_H_

// What `castor probe` measured, in the forms in which it says so. Pure
// functions, thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/json_value.h"
#include "chunk/base/units.h"
#include "offload/internal/machine_topology.h"
#include "offload/kernels/instruction_set.h"
#include "placement/tier_model.h"
#include "tools/cli/text_table.h"
#include "tools/measure/samples.h"

namespace castor {

// A link or a collective, by its key in the machine file.
struct MeasuredLink {
  std::string name;
  std::string words;  // for people
  int64_t bytes_per_second = 0;
  int64_t latency_ns = 0;         // of a collective, of one step
  double residual = 0;            // as LineFit has it
  std::vector<TimedSize> points;  // of a collective, by the whole chunk
};

// Memory or the optimizer, likewise.
struct MeasuredRate {
  std::string name;
  std::string words;
  int64_t bytes_per_second = 0;
  double spread = 0;  // as SpreadOf() has it
  int samples = 0;
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
  std::vector<MeasuredLink> links;
  std::vector<MeasuredRate> rates;
  std::vector<Unmeasured> unmeasured;
  std::optional<MeasuredNvme> nvme;
  std::optional<internal::MachineTopology> topology;
  InstructionSet instructions;
  std::string device;
  bool device_is_simulated = true;
  int ranks = 0;         // of the collectives
  Bytes size;            // of the buffers
  bool stopped = false;  // by the user: what follows was not measured
  bool failed = false;   // something asked for could not be measured
  std::string output;    // the file that was written; empty: none
};

std::string ProbeText(const ProbeReport& report, Emphasis emphasis);

// Schema "castor.probe/1", with the machine file in it.
JsonValue ProbeJson(const ProbeReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PROBE_PROBE_REPORT_H_
