// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Input: a byte, the length of the pattern; the pattern; the text.

#include <fnmatch.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "chunk/base/check.h"
#include "chunk/text/glob.h"

namespace castor {
namespace {

// Where the C library has the same rules, and takes no exponential time.
bool IsComparable(const std::string& pattern, const std::string& text) {
  return pattern.find('[') == std::string::npos &&
         std::count(pattern.begin(), pattern.end(), '*') <= 4 &&
         text.size() <= 64 && pattern.find('\0') == std::string::npos &&
         text.find('\0') == std::string::npos;
}

void Check(const std::string& pattern, const std::string& text) {
  const bool matches = Glob(pattern).Matches(text);
  if (IsComparable(pattern, text)) {
    CASTOR_CHECK_EQ(matches, fnmatch(pattern.c_str(), text.c_str(), 0) == 0);
  }
  CASTOR_CHECK(Glob("*").Matches(text));
  std::string literal;
  for (const char c : text) literal += {'\\', c};
  CASTOR_CHECK(Glob(literal).Matches(text));
  CASTOR_CHECK(!Glob(literal).Matches(text + "x"));
  if (matches) {
    CASTOR_CHECK(Glob("*" + pattern).Matches("x." + text));
  }
}

}  // namespace
}  // namespace castor

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t length = std::min<size_t>(data[0], size - 1);
  const char* const bytes = reinterpret_cast<const char*>(data) + 1;
  castor::Check(std::string(bytes, length),
                std::string(bytes + length, size - 1 - length));
  return 0;
}
