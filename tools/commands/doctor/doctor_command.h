// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_COMMAND_H_
#define CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_COMMAND_H_

// `castor doctor`: what of this machine will hurt, and what to do about it.
// Owner thread only.

#include <memory>

#include "tools/cli/command.h"

namespace castor {

std::unique_ptr<Command> MakeDoctorCommand();

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_COMMAND_H_
