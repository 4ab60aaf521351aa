// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIDE_BY_SIDE_H_
#define CASTOR_TOOLS_COMMANDS_SIDE_BY_SIDE_H_

#include <cstddef>
#include <cstdint>
#include <functional>

namespace castor {

// Calls `task` with every number below `count`, on as many threads as the
// process may use cores, but at most `at_once` (1 or more); the caller's is one
// of them. Numbers begin in order.
// Returns when all have ended. Tasks write results to places of their own, and
// run on fewer threads where the process may start no more. Any thread.
void SideBySide(size_t count, const std::function<void(size_t)>& task,
                size_t at_once = SIZE_MAX);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIDE_BY_SIDE_H_
