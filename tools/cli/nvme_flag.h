// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_NVME_FLAG_H_
#define CASTOR_TOOLS_CLI_NVME_FLAG_H_

// The flag --nvme DIR[:SIZE], given once per drive, the same in every program.
// Asks the file system what is a directory; thread-safe.

#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "offload/nvme/nvme_option.h"

namespace castor {

// For the flag's help.
inline constexpr char kNvmeFlagHelp[] =
    "DIR[:SIZE]: folder for what budgets do not hold, and how much may go "
    "there per rank; given once per drive, their work is shared";

// The drives of all values of the flag, in order. A path may contain colons:
// one that is a directory is taken whole, otherwise a size follows the last
// colon. InvalidArgument, naming the flag and the value, where it has no
// directory, no size after its colon, a size of nothing, or a directory that
// was given before. That a directory exists is checked when it is used.
Result<std::vector<NvmeOption>> ParseNvmeFlag(
    const std::vector<std::string>& values);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_NVME_FLAG_H_
