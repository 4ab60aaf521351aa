// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/quote.h"

#include <fmt/format.h>

#include <cstdint>

namespace castor {
namespace {

// How much is shown: of a name, enough of both ends to find it in its file.
constexpr size_t kLongestName = 120;
constexpr size_t kLongestPath = 4096;

uint8_t ByteAt(std::string_view text, size_t i) {
  return static_cast<uint8_t>(text[i]);
}

// The length of the printable UTF-8 character at the front of `text`, 0 where
// there is none. C1 controls (U+0080 to U+009F), surrogates, overlong forms and
// the direction overrides are not printable.
size_t PrintableLength(std::string_view text) {
  const uint8_t first = ByteAt(text, 0);
  if (first < 0x80) return first >= 0x20 && first != 0x7F ? 1 : 0;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  uint32_t point = first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    const uint8_t next = ByteAt(text, i);
    if ((next & 0xC0) != 0x80) return 0;
    point = point << 6 | (next & 0x3F);
  }
  const uint32_t least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
  if (point < least || point > 0x10FFFF) return 0;
  if (point >= 0xD800 && point <= 0xDFFF) return 0;
  if (point < 0xA0) return 0;
  if (point >= 0x200B && point <= 0x200F) return 0;
  if (point >= 0x2028 && point <= 0x202E) return 0;
  if (point >= 0x2066 && point <= 0x2069) return 0;
  return length;
}

void AppendEscaped(std::string_view text, std::string* out) {
  while (!text.empty()) {
    const char c = text.front();
    const size_t length = PrintableLength(text);
    if (c == '"' || c == '\\') {
      *out += '\\';
      *out += c;
    } else if (length > 0) {
      *out += text.substr(0, length);
      text.remove_prefix(length);
      continue;
    } else if (c == '\n') {
      *out += "\\n";
    } else if (c == '\t') {
      *out += "\\t";
    } else {
      *out += fmt::format("\\x{:02x}", ByteAt(text, 0));
    }
    text.remove_prefix(1);
  }
}

// `text` in quotes, without its middle where it is longer than `longest`.
std::string QuotedWithin(std::string_view text, size_t longest) {
  std::string quoted = "\"";
  if (text.size() <= longest) {
    AppendEscaped(text, &quoted);
  } else {
    const size_t head = longest * 3 / 5;
    const size_t tail = longest / 3;
    AppendEscaped(text.substr(0, head), &quoted);
    quoted += fmt::format("...({} bytes)...", text.size() - head - tail);
    AppendEscaped(text.substr(text.size() - tail), &quoted);
  }
  quoted += '"';
  return quoted;
}

}  // namespace

std::string Quoted(std::string_view text) {
  return QuotedWithin(text, kLongestName);
}

std::string QuotedPath(std::string_view path) {
  return QuotedWithin(path, kLongestPath);
}

}  // namespace castor
