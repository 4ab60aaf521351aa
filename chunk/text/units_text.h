// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_TEXT_UNITS_TEXT_H_
#define CASTOR_CHUNK_TEXT_UNITS_TEXT_H_

// Sizes as people read them, written alike by every message of the library and
// every command. Pure functions, thread-safe.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "chunk/base/units.h"

namespace castor {

struct SizeUnit {
  std::string_view name;
  int64_t bytes;
};

// Powers of 1024, from the largest down.
inline constexpr std::array<SizeUnit, 4> kBinarySizeUnits = {{
    {"TiB", int64_t{1} << 40},
    {"GiB", int64_t{1} << 30},
    {"MiB", int64_t{1} << 20},
    {"KiB", int64_t{1} << 10},
}};

// For people: the largest binary unit that is at most `size`, rounded to two
// decimals without trailing zeros: "416 MiB", "1.63 GiB", "0 B". REQUIRES:
// size >= 0.
std::string FormatSize(Bytes size);

// For a command to paste, with nothing rounded: the largest binary unit of
// which `size` is a whole number, without a space: "416MiB", "1000000B".
// REQUIRES: size >= 0.
std::string FormatSizeExact(Bytes size);

// For a sentence: "4096 bytes", and FormatSize from one MiB on: "1023 MiB". A
// negative number, of a budget that fell short, is written as it is.
std::string FormatBytes(Bytes size);

// The same for bytes that are needed: rounded up, so that the size which the
// text names is enough. ParseSize reads at least `size`.
std::string FormatBytesUp(Bytes size);

}  // namespace castor

#endif  // CASTOR_CHUNK_TEXT_UNITS_TEXT_H_
