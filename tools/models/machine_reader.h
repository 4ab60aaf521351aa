// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_MACHINE_READER_H_
#define CASTOR_TOOLS_MODELS_MACHINE_READER_H_

// A machine's speeds from a file (placement/tier_model_file.h), for every
// command that takes one. Pure function of the file, thread-safe.

#include <string>

#include "chunk/base/status.h"
#include "placement/tier_model.h"

namespace castor {

// "-" is the standard input. InvalidArgument where nothing is at `path`,
// Malformed where it is no tier model; both name `path`.
Result<TierModel> ReadMachineFile(const std::string& path);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_MACHINE_READER_H_
