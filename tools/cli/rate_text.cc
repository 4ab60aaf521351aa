// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/rate_text.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "chunk/base/quote.h"
#include "chunk/base/units.h"
#include "placement/step_trace.h"
#include "placement/tier_model.h"
#include "tools/cli/decimal_number.h"
#include "tools/cli/size_text.h"

namespace castor {
namespace {

Status BadBandwidth(std::string_view text, std::string_view why) {
  return InvalidArgument(fmt::format(
      "{} is not a bandwidth: {}; write bytes per second with a unit: 24GB/s "
      "(10^9), 24GiB/s (2^30), 500MB/s",
      Quoted(text), why));
}

Status BadTime(std::string_view text, std::string_view why) {
  return InvalidArgument(fmt::format(
      "{} is not a time: {}; write a number with a unit: 800ns, 10us, 1.5ms",
      Quoted(text), why));
}

struct TimeUnit {
  std::string_view name;
  int64_t nanoseconds;
};

constexpr std::array<TimeUnit, 4> kTimeUnits = {{
    {"ns", 1},
    {"us", 1'000},
    {"ms", 1'000'000},
    {"s", 1'000'000'000},
}};

Result<int64_t> ParseTime(std::string_view text, int64_t most_ns) {
  std::string_view rest = text;
  const Result<DecimalNumber> number = TakeDecimal(&rest);
  if (!number.ok()) return BadTime(text, number.status().message());
  for (const TimeUnit& unit : kTimeUnits) {
    if (unit.name != rest) continue;
    if (unit.nanoseconds == 1 && !number->is_whole()) {
      return BadTime(text, "nanoseconds come whole");
    }
    const std::optional<int64_t> ns = number->Times(unit.nanoseconds);
    if (!ns || *ns > most_ns) {
      return BadTime(text,
                     fmt::format("it is above {}s", most_ns / 1'000'000'000));
    }
    return *ns;
  }
  return BadTime(
      text, rest.empty() ? "it has no unit"
                         : fmt::format("its unit {} is unknown", Quoted(rest)));
}

}  // namespace

Result<int64_t> ParseBandwidth(std::string_view text) {
  std::string_view size = text;
  if (!size.ends_with("/s")) {
    return BadBandwidth(text, "it does not end with /s");
  }
  size.remove_suffix(2);
  if (!size.ends_with('B')) {
    return BadBandwidth(text, "it does not count bytes, B");
  }
  const Result<Bytes> bytes = ParseSize(size);
  if (!bytes.ok()) {
    return BadBandwidth(text, fmt::format("{} is no size", Quoted(size)));
  }
  if (*bytes < Bytes(1) || *bytes > Bytes(kMaxBytesPerSecond)) {
    return BadBandwidth(text,
                        fmt::format("it must be between 1B/s and {}TB/s",
                                    kMaxBytesPerSecond / 1'000'000'000'000));
  }
  return bytes->count();
}

Result<int64_t> ParseLatency(std::string_view text) {
  return ParseTime(text, kMaxLatencyNs);
}

Result<int64_t> ParseStepTime(std::string_view text) {
  return ParseTime(text, kMaxStepNs);
}

}  // namespace castor
