// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DOCTOR_STORAGE_FINDINGS_H_
#define CASTOR_TOOLS_COMMANDS_DOCTOR_STORAGE_FINDINGS_H_

// What NVMe transfers need: io_uring, open files, and of each folder that was
// given, that it can be used, what file system it is on, O_DIRECT, free space.

#include <span>
#include <vector>

#include "offload/nvme/nvme_option.h"
#include "tools/commands/doctor/doctor_system.h"
#include "tools/commands/doctor/finding.h"

namespace castor {

std::vector<Finding> StorageFindings(const DoctorSystem& system,
                                     std::span<const NvmeOption> drives);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DOCTOR_STORAGE_FINDINGS_H_
