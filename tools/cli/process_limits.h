// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_PROCESS_LIMITS_H_
#define CASTOR_TOOLS_CLI_PROCESS_LIMITS_H_

// Limits of a process that would end it by a signal, without a word.

#include "chunk/base/status.h"

namespace castor {

// From here on a write beyond `ulimit -f` is an error of that write.
// Unavailable where `ulimit -s` leaves threads too little stack. To be called
// before any thread starts.
Status PrepareForLimits();

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_PROCESS_LIMITS_H_
