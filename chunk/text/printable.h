// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_TEXT_PRINTABLE_H_
#define CASTOR_CHUNK_TEXT_PRINTABLE_H_

// Which characters may reach a terminal, or a reader of JSON, as they are.
// Pure functions, thread-safe.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace castor {

// The character at the front of a UTF-8 text.
struct FrontCharacter {
  size_t bytes = 0;  // 0: the text does not begin with UTF-8
  uint32_t point = 0;
  // False for what shows nothing and changes what a reader sees: controls (C0,
  // DEL, C1), direction marks and overrides, and characters without width.
  bool printable = false;
};

// REQUIRES: `text` is not empty.
FrontCharacter ReadFront(std::string_view text);

// `text` with what is not printable as \xNN, byte by byte; newlines and tabs
// stay. For words of Castor's own that may hold foreign ones.
std::string Printable(std::string_view text);

}  // namespace castor

#endif  // CASTOR_CHUNK_TEXT_PRINTABLE_H_
