// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_TEXT_GLOB_H_
#define CASTOR_CHUNK_TEXT_GLOB_H_

// Patterns on names, as people write them for files.

#include <bitset>
#include <optional>
#include <string_view>
#include <vector>

namespace castor {

// A pattern as the shell has them for file names, but that knows no slashes: *
// stands for any characters, dots and none included, ? for one, [a-z] and
// [!a-z] for one of a set, and \ takes the meaning from the next character. A [
// without its ] stands for itself. Immutable, thread-safe.
class Glob {
 public:
  explicit Glob(std::string_view pattern);

  // The whole of `text`. Takes at most as many steps as pattern and text have
  // characters, multiplied.
  bool Matches(std::string_view text) const;

 private:
  // The characters that match in one place; empty for *.
  using Place = std::optional<std::bitset<256>>;
  std::vector<Place> places_;
};

}  // namespace castor

#endif  // CASTOR_CHUNK_TEXT_GLOB_H_
