// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_CKPT_CKPT_CONVERT_H_
#define CASTOR_TOOLS_COMMANDS_CKPT_CKPT_CONVERT_H_

// `castor ckpt convert`: a checkpoint's weights as a plain model, in a type and
// in files of a size of the user's choice. Thread-safe.

#include "chunk/base/status.h"
#include "tools/cli/console.h"
#include "tools/commands/ckpt/ckpt_request.h"

namespace castor {

// Makes the folder `request.out`, which is not there yet, whole or not at all.
// What is rounded is rounded from fp32 masters, where there are any. Holds a
// few MiB. InvalidArgument where the folder is there, or a weight's type cannot
// be converted.
Status RunCkptConvert(const CkptRequest& request, const Console& console);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_CKPT_CKPT_CONVERT_H_
