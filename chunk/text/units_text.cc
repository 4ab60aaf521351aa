// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/units_text.h"

#include <fmt/format.h>

#include "chunk/base/check.h"

namespace castor {
namespace {

__extension__ using Wide = __int128;

// "1.63 GiB" of 163 hundredths of a GiB.
std::string InHundredths(int64_t hundredths, const SizeUnit& unit) {
  std::string number = fmt::format("{}", hundredths / 100);
  const int64_t rest = hundredths % 100;
  if (rest != 0) number += fmt::format(".{:02}", rest);
  if (rest != 0 && rest % 10 == 0) number.pop_back();
  return number + " " + std::string(unit.name);
}

}  // namespace

std::string FormatSize(Bytes size) {
  CASTOR_CHECK_GE(size.count(), 0);
  if (size < KiB(1)) return fmt::format("{} B", size.count());
  // From the smallest unit up, so that 1023.999 KiB, which rounds to 1024,
  // becomes 1 MiB.
  for (size_t i = kBinarySizeUnits.size() - 1;; --i) {
    const SizeUnit& unit = kBinarySizeUnits[i];
    const auto hundredths = static_cast<int64_t>(
        (Wide{size.count()} * 100 + unit.bytes / 2) / unit.bytes);
    if (i > 0 && hundredths >= 102'400) continue;
    return InHundredths(hundredths, unit);
  }
}

std::string FormatSizeExact(Bytes size) {
  CASTOR_CHECK_GE(size.count(), 0);
  for (const SizeUnit& unit : kBinarySizeUnits) {
    if (size.count() >= unit.bytes && size.count() % unit.bytes == 0) {
      return fmt::format("{}{}", size.count() / unit.bytes, unit.name);
    }
  }
  return fmt::format("{}B", size.count());
}

std::string FormatBytes(Bytes size) {
  if (size < MiB(1)) return fmt::format("{} bytes", size.count());
  return FormatSize(size);
}

std::string FormatBytesUp(Bytes size) {
  if (size < MiB(1)) return FormatBytes(size);
  for (size_t i = kBinarySizeUnits.size() - 1;; --i) {
    const SizeUnit& unit = kBinarySizeUnits[i];
    // As it is read back, a part of a byte is dropped.
    Wide hundredths = Wide{size.count()} * 100 / unit.bytes;
    while (hundredths * unit.bytes / 100 < Wide{size.count()}) ++hundredths;
    if (i > 0 && hundredths >= 102'400) continue;
    return InHundredths(static_cast<int64_t>(hundredths), unit);
  }
}

}  // namespace castor
