// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_TEXT_QUANTITY_TEXT_H_
#define CASTOR_CHUNK_TEXT_QUANTITY_TEXT_H_

// Part of sizes as text (units_text.h): sizes, times and speeds as people write
// them. Every flag is parsed here and nowhere else, so `24GiB` and `24GB` mean
// the same everywhere. Each failure is InvalidArgument; its message quotes the
// text and says what to write instead. Pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {

// A whole number of bytes, or a decimal number with a unit: KiB, MiB, GiB, TiB
// are powers of 1024; KB, MB, GB, TB powers of 1000; B is one byte. Units are
// case-sensitive, and a bare `G` is refused, because a guess between two
// meanings is wrong half the time. Fractions are exact: `1.5GiB` is 1610612736,
// and what is less than a byte is dropped (`0.1KiB` is 102). Nothing is
// negative or above 2^63 - 1 bytes.
Result<Bytes> ParseSize(std::string_view text);

// Nanoseconds up to `most`: a number and ns, us, ms or s: `10us`, `1.5ms`.
Result<int64_t> ParseTime(std::string_view text, int64_t most);
// For a command to paste, with nothing rounded: "1500us", "2ms". REQUIRES: ns
// >= 0.
std::string FormatTimeExact(int64_t ns);

// Bytes per second from `least` to `most`, whole megabytes and terabytes: a
// size with a unit and "/s": `24GB/s` is 24 * 10^9, `24GiB/s` 24 * 2^30.
Result<int64_t> ParseBandwidth(std::string_view text, int64_t least,
                               int64_t most);

// The number in front of a unit, "1.5" of "1.5GiB", exact for any number of
// digits. It refers to the text that it was taken from.
struct DecimalNumber {
  std::string_view whole;     // digits before the point, at least one
  std::string_view fraction;  // after it; empty where there is no point

  // Whether nothing but zeros follows the point.
  bool is_whole() const {
    return fraction.find_first_not_of('0') == fraction.npos;
  }

  // The number times `unit`, what is less than one dropped. Empty where that is
  // above 2^63 - 1. REQUIRES: 0 < unit <= 2^59.
  std::optional<int64_t> Times(int64_t unit) const;
};

// Takes the number at the front of `*text`, which keeps the rest. The message
// has a few words: "it does not begin with a digit", "no digit follows the
// point".
Result<DecimalNumber> TakeDecimal(std::string_view* text);

}  // namespace castor

#endif  // CASTOR_CHUNK_TEXT_QUANTITY_TEXT_H_
