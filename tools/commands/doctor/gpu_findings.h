// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DOCTOR_GPU_FINDINGS_H_
#define CASTOR_TOOLS_COMMANDS_DOCTOR_GPU_FINDINGS_H_

// NVIDIA's GPUs, as the PCI bus shows them: links, driver, runtime, NCCL. No
// library of theirs is linked; what is installed is found when this runs.

#include <vector>

#include "tools/commands/doctor/doctor_system.h"
#include "tools/commands/doctor/finding.h"

namespace castor {

std::vector<Finding> GpuFindings(const DoctorSystem& system);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DOCTOR_GPU_FINDINGS_H_
