// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/param_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "chunk/base/did_you_mean.h"
#include "chunk/base/quote.h"

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

bool AnyMatches(const std::vector<Glob>& globs, const std::string& name) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](const Glob& glob) { return glob.Matches(name); });
}

Status MatchesNothing(const std::string& flag, const std::string& pattern,
                      const ModelList& list) {
  const std::string what =
      fmt::format("{} {} matches none of the model's {} parameters", flag,
                  Quoted(pattern), list.params.size());
  const Glob glob(pattern);
  for (const DroppedTensor& tensor : list.dropped) {
    if (!glob.Matches(tensor.name)) continue;
    return InvalidArgument(fmt::format("{}, only {}, which is none ({})", what,
                                       Quoted(tensor.name), tensor.reason));
  }
  std::vector<std::string> names;
  names.reserve(list.params.size());
  for (const ParamSpec& spec : list.params) names.push_back(spec.name);
  const std::optional<std::string> nearest = NearestName(pattern, names);
  if (nearest) {
    return InvalidArgument(
        fmt::format("{}; did you mean {}?", what, Quoted(*nearest)));
  }
  return InvalidArgument(fmt::format(
      "{}{}; a pattern is matched with the whole name, and * stands for any "
      "characters",
      what,
      names.empty() ? "" : ", the first of which is " + Quoted(names.front())));
}

// REQUIRES: every glob is of the pattern with the same index.
Status CheckUsed(const std::string& flag,
                 const std::vector<std::string>& patterns,
                 const std::vector<Glob>& globs, const ModelList& list) {
  for (size_t i = 0; i < globs.size(); ++i) {
    const bool used = std::any_of(
        list.params.begin(), list.params.end(),
        [&](const ParamSpec& spec) { return globs[i].Matches(spec.name); });
    if (!used) return MatchesNothing(flag, patterns[i], list);
  }
  return OkStatus();
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

Status FilterTrainable(const std::vector<std::string>& freeze,
                       const std::vector<std::string>& only, ModelList& list) {
  const std::vector<Glob> frozen(freeze.begin(), freeze.end());
  const std::vector<Glob> trained(only.begin(), only.end());
  CASTOR_RETURN_IF_ERROR(CheckUsed("--freeze", freeze, frozen, list));
  CASTOR_RETURN_IF_ERROR(CheckUsed("--only", only, trained, list));
  for (ParamSpec& spec : list.params) {
    spec.trainable = (only.empty() || AnyMatches(trained, spec.name)) &&
                     !AnyMatches(frozen, spec.name);
  }
  return OkStatus();
}

}  // namespace castor
