// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_REPORT_H_
#define CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_REPORT_H_

// What `castor doctor` found, in the forms in which it says so. Pure functions,
// thread-safe.

#include <optional>
#include <string>
#include <vector>

#include "chunk/base/json_value.h"
#include "chunk/base/status.h"
#include "offload/internal/machine_topology.h"
#include "tools/cli/text_table.h"
#include "tools/commands/doctor/finding.h"

namespace castor {

struct DoctorReport {
  std::vector<Finding> findings;  // in the order in which they were looked for
  std::optional<internal::MachineTopology> topology;
};

// What blocks first, then what hurts, then the rest; a fix that is a command is
// on a line of its own, to be copied.
std::string DoctorText(const DoctorReport& report, Emphasis emphasis);

// Schema "castor.doctor/1".
JsonValue DoctorJson(const DoctorReport& report);

// Unavailable, naming what blocks, where anything does.
Status DoctorStatus(const DoctorReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_REPORT_H_
