// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/quantity_text.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

#include "chunk/base/check.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"

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

struct TimeUnit {
  std::string_view name;
  int64_t nanoseconds;
};

constexpr std::array<TimeUnit, 4> kTimeUnits = {{
    {"s", 1'000'000'000},
    {"ms", 1'000'000},
    {"us", 1'000},
    {"ns", 1},
}};

Status BadSize(std::string_view text, std::string_view why) {
  return InvalidArgument(fmt::format(
      "{} is not a size: {}; write a number of bytes, or a number with a unit: "
      "24GiB (2^30), 24GB (10^9), 1.5MiB, 512KiB",
      Quoted(text), why));
}

Status BadTime(std::string_view text, std::string_view why) {
  return InvalidArgument(fmt::format(
      "{} is not a time: {}; write a number with a unit: 800ns, 10us, 1.5ms",
      Quoted(text), why));
}

Status BadBandwidth(std::string_view text, std::string_view why) {
  return InvalidArgument(fmt::format(
      "{} is not a bandwidth: {}; write bytes per second with a unit: 24GB/s "
      "(10^9), 24GiB/s (2^30), 500MB/s",
      Quoted(text), why));
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

std::string_view TakeDigits(std::string_view* text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t count = 0;
  while (count < text->size() && is_digit((*text)[count])) ++count;
  const std::string_view digits = text->substr(0, count);
  text->remove_prefix(count);
  return digits;
}

}  // namespace

std::optional<int64_t> DecimalNumber::Times(int64_t unit) const {
  int64_t value = 0;
  for (const char digit : whole) {
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, digit - '0', &value)) {
      return std::nullopt;
    }
  }
  if (__builtin_mul_overflow(value, unit, &value)) return std::nullopt;
  // From the last digit to the first, dropping what is below one each time:
  // floor((n + x) / 10) is floor((n + floor(x)) / 10), so this is exact for any
  // number of digits.
  int64_t part = 0;
  for (size_t i = fraction.size(); i-- > 0;) {
    part = (part + (fraction[i] - '0') * unit) / 10;
  }
  if (__builtin_add_overflow(value, part, &value)) return std::nullopt;
  return value;
}

Result<DecimalNumber> TakeDecimal(std::string_view* text) {
  DecimalNumber number;
  number.whole = TakeDigits(text);
  if (number.whole.empty()) {
    return InvalidArgument("it does not begin with a digit");
  }
  if (text->empty() || text->front() != '.') return number;
  text->remove_prefix(1);
  number.fraction = TakeDigits(text);
  if (number.fraction.empty()) {
    return InvalidArgument("no digit follows the point");
  }
  return number;
}

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

Result<int64_t> ParseTime(std::string_view text, int64_t most) {
  std::string_view rest = text;
  const Result<DecimalNumber> number = TakeDecimal(&rest);
  if (!number.ok()) return BadTime(text, number.status().message());
  for (const TimeUnit& unit : kTimeUnits) {
    if (unit.name != rest) continue;
    if (unit.nanoseconds == 1 && !number->is_whole()) {
      return BadTime(text, "nanoseconds come whole");
    }
    const std::optional<int64_t> ns = number->Times(unit.nanoseconds);
    if (!ns || *ns > most) {
      return BadTime(text,
                     fmt::format("it is above {}s", most / 1'000'000'000));
    }
    return *ns;
  }
  return BadTime(
      text, rest.empty() ? "it has no unit"
                         : fmt::format("its unit {} is unknown", Quoted(rest)));
}

std::string FormatTimeExact(int64_t ns) {
  CASTOR_CHECK_GE(ns, 0);
  size_t unit = 0;
  while (ns % kTimeUnits[unit].nanoseconds != 0) ++unit;
  return fmt::format("{}{}", ns / kTimeUnits[unit].nanoseconds,
                     kTimeUnits[unit].name);
}

Result<int64_t> ParseBandwidth(std::string_view text, int64_t least,
                               int64_t most) {
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
  if (*bytes < Bytes(least) || *bytes > Bytes(most)) {
    return BadBandwidth(
        text, fmt::format("it must be between {}MB/s and {}TB/s",
                          least / 1'000'000, most / 1'000'000'000'000));
  }
  return bytes->count();
}

}  // namespace castor
