// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_CKPT_CKPT_LIST_H_
#define CASTOR_TOOLS_COMMANDS_CKPT_CKPT_LIST_H_

// `castor ckpt ls` and `castor ckpt verify`: both go through the checkpoints of
// a folder. Thread-safe.

#include <vector>

#include "chunk/base/status.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "tools/cli/console.h"
#include "tools/commands/ckpt/ckpt_request.h"

namespace castor {

// Those that the request names: all of a folder, or one.
Result<std::vector<FoundCheckpoint>> CheckpointsOf(const CkptRequest& request);

// Prints steps, sizes and tensors, from manifests alone. Malformed, after all
// that can be read was printed, where a manifest cannot.
Status RunCkptList(const CkptRequest& request, const Console& console);

// Reads every byte and prints what is not as it was saved. Infeasible where
// something is not, is missing or is cut short; IoError where the system
// refuses to read.
Status RunCkptVerify(const CkptRequest& request, const Console& console);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_CKPT_CKPT_LIST_H_
