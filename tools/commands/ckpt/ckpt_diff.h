// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_CKPT_CKPT_DIFF_H_
#define CASTOR_TOOLS_COMMANDS_CKPT_CKPT_DIFF_H_

// `castor ckpt diff`: which tensors of two checkpoints differ, in how many
// elements and by how much. Thread-safe.

#include "chunk/base/status.h"
#include "tools/cli/console.h"
#include "tools/commands/ckpt/ckpt_request.h"

namespace castor {

// Reads what both have, every byte of it. Infeasible where anything differs;
// DataLoss, naming tensor and file, where one of them does not hold what was
// saved.
Status RunCkptDiff(const CkptRequest& request, const Console& console);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_CKPT_CKPT_DIFF_H_
