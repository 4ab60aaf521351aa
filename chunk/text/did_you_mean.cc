// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/did_you_mean.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace castor {
namespace {

// No name is longer; what is, was not mistyped.
constexpr size_t kMaxLength = 64;

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return lower;
}

// Optimal string alignment: each stretch of text is edited at most once.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<std::string> NearestName(std::string_view given,
                                       std::span<const std::string> known) {
  if (given.empty() || given.size() > kMaxLength) return std::nullopt;
  const std::string wanted = Lower(given);
  std::optional<std::string> nearest;
  size_t least = 0;
  for (const std::string& name : known) {
    const size_t distance = EditDistance(wanted, Lower(name));
    if (distance * 3 > std::max(name.size(), wanted.size())) continue;
    if (!nearest || distance < least) {
      nearest = name;
      least = distance;
    }
  }
  return nearest;
}

std::string SuggestName(std::string_view given,
                        std::span<const std::string> known) {
  if (const std::optional<std::string> nearest = NearestName(given, known)) {
    return fmt::format("; did you mean {}?", *nearest);
  }
  return fmt::format("; known are {}", fmt::join(known, ", "));
}

}  // namespace castor
