// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/size_text.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>

#include "chunk/base/quote.h"
#include "tools/cli/decimal_number.h"

namespace castor {
namespace {

constexpr std::array<SizeUnit, 6> kOtherUnits = {{
    {"TB", 1'000'000'000'000},
    {"GB", 1'000'000'000},
    {"MB", 1'000'000},
    {"KB", 1'000},
    {"B", 1},
    {"", 1},
}};

constexpr std::string_view kHowToWrite =
    "write a number of bytes, or a number with a unit: 24GiB (2^30), 24GB "
    "(10^9), 1.5MiB, 512KiB";

Status BadSize(std::string_view text, std::string_view why) {
  return InvalidArgument(
      fmt::format("{} is not a size: {}; {}", Quoted(text), why, kHowToWrite));
}

std::optional<int64_t> UnitBytes(std::string_view name) {
  for (const SizeUnit& unit : kBinarySizeUnits) {
    if (unit.name == name) return unit.bytes;
  }
  for (const SizeUnit& unit : kOtherUnits) {
    if (unit.name == name) return unit.bytes;
  }
  return std::nullopt;
}

// A letter that could be either kind of unit, or one in the wrong case.
Status UnknownUnit(std::string_view text, std::string_view number,
                   std::string_view unit) {
  const char upper =
      unit.front() >= 'a' ? static_cast<char>(unit.front() - 32) : unit.front();
  if (unit.size() <= 3 &&
      std::string_view("KMGT").find(upper) != std::string_view::npos) {
    return BadSize(
        text, fmt::format("{} could mean {}{}iB or {}{}B", Quoted(unit), number,
                          upper, number, upper));
  }
  return BadSize(text, fmt::format("its unit {} is unknown", Quoted(unit)));
}

}  // namespace

Result<Bytes> ParseSize(std::string_view text) {
  std::string_view rest = text;
  if (rest.empty()) return BadSize(text, "it is empty");
  if (rest.front() == '-') return BadSize(text, "a size is never negative");
  const Result<DecimalNumber> number = TakeDecimal(&rest);
  if (!number.ok()) return BadSize(text, number.status().message());
  const std::string_view digits = text.substr(0, text.size() - rest.size());
  if (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const std::optional<int64_t> unit = UnitBytes(rest);
  if (!unit) return UnknownUnit(text, digits, rest);
  if (*unit == 1 && !number->is_whole()) {
    return BadSize(text, "bytes come whole");
  }
  const std::optional<int64_t> bytes = number->Times(*unit);
  if (!bytes) {
    return BadSize(text,
                   "it is above the largest size, 9223372036854775807 bytes");
  }
  return Bytes(*bytes);
}

}  // namespace castor
