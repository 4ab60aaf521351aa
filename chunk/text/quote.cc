// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/quote.h"

#include <fmt/format.h>

#include <cstdint>

#include "chunk/text/printable.h"

namespace castor {
namespace {

// How much is shown: of a name, enough of both ends to find it in its file.
constexpr size_t kLongestName = 120;
constexpr size_t kLongestPath = 4096;

void AppendEscaped(std::string_view text, std::string* out) {
  while (!text.empty()) {
    const char c = text.front();
    const FrontCharacter front = ReadFront(text);
    if (c == '"' || c == '\\') {
      *out += '\\';
      *out += c;
    } else if (front.printable) {
      *out += text.substr(0, front.bytes);
      text.remove_prefix(front.bytes);
      continue;
    } else if (c == '\n') {
      *out += "\\n";
    } else if (c == '\t') {
      *out += "\\t";
    } else {
      *out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
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
