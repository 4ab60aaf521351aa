// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DOCTOR_MEMORY_FINDINGS_H_
#define CASTOR_TOOLS_COMMANDS_DOCTOR_MEMORY_FINDINGS_H_

// Host memory: how much there is, how much may be locked, how large its pages
// are, and what the kernel does when it runs out.

#include <vector>

#include "tools/commands/doctor/doctor_system.h"
#include "tools/commands/doctor/finding.h"

namespace castor {

std::vector<Finding> MemoryFindings(const DoctorSystem& system);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DOCTOR_MEMORY_FINDINGS_H_
