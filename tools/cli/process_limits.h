// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_PROCESS_LIMITS_H_
#define CASTOR_TOOLS_CLI_PROCESS_LIMITS_H_

// Limits of a process that would end it by a signal, without a word.

#include <string>

#include "chunk/base/status.h"

namespace castor {

// From here on:
// - a write beyond `ulimit -f` is an error of that write;
// - a process without memory says "`who`: " and what to do on standard error,
//   removes its run directories and exits with the code of kUnavailable. An
//   exception would unwind an engine in the middle of a step instead.
// Unavailable where `ulimit -s` leaves threads too little stack. To be called
// before any thread starts, once for each process.
Status PrepareForLimits(const std::string& who);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_PROCESS_LIMITS_H_
