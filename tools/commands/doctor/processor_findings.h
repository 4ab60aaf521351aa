// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DOCTOR_PROCESSOR_FINDINGS_H_
#define CASTOR_TOOLS_COMMANDS_DOCTOR_PROCESSOR_FINDINGS_H_

// Cores, what they compute with, and what memory they are near to.

#include <string>
#include <vector>

#include "offload/internal/machine_topology.h"
#include "tools/commands/doctor/doctor_system.h"
#include "tools/commands/doctor/finding.h"

namespace castor {

// The instruction set of the kernels, and the processor time of the cgroups.
std::vector<Finding> ProcessorFindings(const DoctorSystem& system);

// The NUMA nodes of `topology`, which is this machine's where `file` is empty,
// else what that file holds: of another machine binding is not tried.
std::vector<Finding> TopologyFindings(const DoctorSystem& system,
                                      const internal::MachineTopology& topology,
                                      const std::string& file);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DOCTOR_PROCESSOR_FINDINGS_H_
