// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_CKPT_CKPT_COMMAND_H_
#define CASTOR_TOOLS_COMMANDS_CKPT_CKPT_COMMAND_H_

// `castor ckpt ls|verify|convert|diff`: what checkpoints hold, whether it is
// what was saved, as a plain model, and how two differ. Owner thread only.

#include <memory>

#include "tools/cli/command.h"

namespace castor {

std::unique_ptr<Command> MakeCkptCommand();

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_CKPT_CKPT_COMMAND_H_
