// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_RATE_TEXT_H_
#define CASTOR_TOOLS_CLI_RATE_TEXT_H_

// Speeds and times as people write them, for those who declare them instead of
// measuring. Pure functions, thread-safe.

#include <cstdint>
#include <string_view>

#include "chunk/base/status.h"

namespace castor {

// Bytes per second: a size with a unit, as ParseSize reads it, and "/s":
// `24GB/s` is 24 * 10^9, `24GiB/s` 24 * 2^30. InvalidArgument for anything
// else, and for what is zero or above kMaxBytesPerSecond; the message quotes
// the text and says what to write instead.
Result<int64_t> ParseBandwidth(std::string_view text);

// Nanoseconds: a number and ns, us, ms or s: `10us`, `1.5ms`. InvalidArgument
// for anything else, and for what is above kMaxLatencyNs.
Result<int64_t> ParseLatency(std::string_view text);

// The same for how long a step computes: `850ms`, `20s`, up to kMaxStepNs.
Result<int64_t> ParseStepTime(std::string_view text);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_RATE_TEXT_H_
