// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_STRIP_H_
#define CASTOR_TOOLS_REPORT_STRIP_H_

// Shares over time as one line of text. Pure function, thread-safe.

#include <cstdint>
#include <span>
#include <string>

namespace castor {

// ASCII is the same everywhere, blocks read better on a terminal that shows
// UTF-8.
enum class StripInk : uint8_t { kAscii, kBlocks };

// One character per share: the lightest ink for anything at all, the darkest
// from 7/8 on, a space for none. What is below 0 or above 1 counts as that.
std::string DrawStrip(std::span<const double> shares, StripInk ink);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_STRIP_H_
