// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace castor {
namespace {

struct PointRange {
  uint32_t first;
  uint32_t last;
};

// Surrogates are no characters. U+00AD is a hyphen that mostly is not shown.
constexpr PointRange kNotPrintable[] = {
    {0x00, 0x1F},     {0x7F, 0x9F},     {0xAD, 0xAD},     {0x61C, 0x61C},
    {0x180E, 0x180E}, {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},
    {0xD800, 0xDFFF}, {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};

uint8_t ByteAt(std::string_view text, size_t i) {
  return static_cast<uint8_t>(text[i]);
}

}  // namespace

FrontCharacter ReadFront(std::string_view text) {
  const uint8_t first = ByteAt(text, 0);
  size_t length = 1;
  uint32_t point = first;
  if (first >= 0x80) {
    length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || text.size() < length) return {};
    point = first & (0x7Fu >> length);
    for (size_t i = 1; i < length; ++i) {
      const uint8_t next = ByteAt(text, i);
      if ((next & 0xC0) != 0x80) return {};
      point = point << 6 | (next & 0x3F);
    }
    const uint32_t least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
    if (point < least || point > 0x10FFFF) return {};
    if (point >= 0xD800 && point <= 0xDFFF) return {};
  }
  const bool printable =
      std::none_of(std::begin(kNotPrintable), std::end(kNotPrintable),
                   [point](const PointRange& range) {
                     return range.first <= point && point <= range.last;
                   });
  return {length, point, printable};
}

std::string Printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const FrontCharacter front = ReadFront(text);
    if (front.printable || text.front() == '\n' || text.front() == '\t') {
      out += text.substr(0, front.bytes);
      text.remove_prefix(front.bytes);
    } else {
      out += fmt::format("\\x{:02x}", ByteAt(text, 0));
      text.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace castor
