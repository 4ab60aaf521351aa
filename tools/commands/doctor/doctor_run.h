// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_RUN_H_
#define CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_RUN_H_

// From what `castor doctor` was asked for to what it found. Owner thread only.

#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "tools/commands/doctor/doctor_report.h"
#include "tools/commands/doctor/doctor_system.h"

namespace castor {

struct DoctorRequest {
  std::vector<std::string> nvme;  // values of --nvme
  // A file that hwloc wrote, in place of this machine's topology; empty: none.
  std::string topology;
  bool json = false;
};

// Fails where the request has no meaning or the file cannot be read. What
// blocks is a finding.
Result<DoctorReport> RunDoctor(const DoctorRequest& request,
                               const DoctorSystem& system);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_RUN_H_
