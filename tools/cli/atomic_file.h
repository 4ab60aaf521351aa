// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_ATOMIC_FILE_H_
#define CASTOR_TOOLS_CLI_ATOMIC_FILE_H_

// A result file that is there whole or not at all. Thread-safe.

#include <string>
#include <string_view>

#include "chunk/base/status.h"

namespace castor {

// Writes `bytes` to a new file beside `path`, flushes it to the drive, and
// gives it the name `path`, replacing a regular file (or what a symbolic link
// leads to) that has it. Where anything fails, `path` is as it was and nothing
// else is left. InvalidArgument where `path` cannot name such a file: it is
// empty, its folder is missing, or something else has it, a folder or a device
// for instance. IoError where the system refuses: no permission, no space.
Status WriteFileAtomically(const std::string& path, std::string_view bytes);

// What WriteFileAtomically would refuse about the path itself, before the work
// whose result is to go there. Writes nothing.
Status CheckFileTarget(const std::string& path);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_ATOMIC_FILE_H_
