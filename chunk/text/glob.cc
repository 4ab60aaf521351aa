// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/glob.h"

#include <cstddef>
#include <cstdint>

namespace castor {
namespace {

uint8_t Byte(char c) { return static_cast<uint8_t>(c); }

struct Set {
  std::bitset<256> characters;
  size_t end = 0;  // behind its ]
};

// The set whose [ is before `at`. Empty where no ] ends it.
std::optional<Set> ParseSet(std::string_view pattern, size_t at) {
  const bool negated =
      at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^');
  if (negated) ++at;
  // One character of the set, its backslash passed over.
  const auto take = [&]() -> std::optional<uint8_t> {
    if (at < pattern.size() && pattern[at] == '\\') ++at;
    if (at >= pattern.size()) return std::nullopt;
    return Byte(pattern[at++]);
  };
  Set set;
  for (bool first = true; at < pattern.size(); first = false) {
    // A ] in the first place is one of the characters.
    if (pattern[at] == ']' && !first) {
      if (negated) set.characters.flip();
      set.end = at + 1;
      return set;
    }
    const std::optional<uint8_t> low = take();
    if (!low) return std::nullopt;
    std::optional<uint8_t> high = low;
    if (at + 1 < pattern.size() && pattern[at] == '-' &&
        pattern[at + 1] != ']') {
      ++at;
      high = take();
      if (!high) return std::nullopt;
    }
    for (int c = *low; c <= *high; ++c) set.characters.set(c);
  }
  return std::nullopt;
}

}  // namespace

Glob::Glob(std::string_view pattern) {
  // Where one [ has no ], none behind it has.
  bool sets = true;
  for (size_t at = 0; at < pattern.size();) {
    const char c = pattern[at++];
    if (c == '*') {
      places_.emplace_back();
      continue;
    }
    if (c == '[' && sets) {
      if (const std::optional<Set> set = ParseSet(pattern, at)) {
        places_.emplace_back(set->characters);
        at = set->end;
        continue;
      }
      sets = false;
    }
    std::bitset<256> characters;
    if (c == '?') {
      characters.set();
    } else if (c != '\\') {
      characters.set(Byte(c));
    } else if (at < pattern.size()) {
      characters.set(Byte(pattern[at++]));
    }
    // Behind the last backslash there is nothing, which nothing matches.
    places_.emplace_back(characters);
  }
}

// The last * is given as little text as possible, and one character more after
// each failure; those before it never need more than they have.
bool Glob::Matches(std::string_view text) const {
  size_t p = 0;
  size_t t = 0;
  std::optional<size_t> star;  // the place behind the last one seen
  size_t star_end = 0;         // of the text given to it
  while (true) {
    if (p < places_.size() && !places_[p]) {
      star = ++p;
      star_end = t;
    } else if (t == text.size()) {
      return p == places_.size();
    } else if (p < places_.size() && places_[p]->test(Byte(text[t]))) {
      ++p;
      ++t;
    } else if (star) {
      p = *star;
      t = ++star_end;
    } else {
      return false;
    }
  }
}

}  // namespace castor
