// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_DURATION_TEXT_H_
#define CASTOR_TOOLS_CLI_DURATION_TEXT_H_

// Times as people read them. Pure function, thread-safe.

#include <cstdint>
#include <string>

namespace castor {

// "1.23 s", "45.6 ms", "789 us", "12 ns": three digits. REQUIRES: ns >= 0.
std::string FormatDuration(int64_t ns);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_DURATION_TEXT_H_
