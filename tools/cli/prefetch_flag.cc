// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/prefetch_flag.h"

#include <fmt/format.h>

#include <charconv>

#include "chunk/base/quote.h"

namespace castor {

Result<PrefetchChoice> ParsePrefetchFlag(
    const std::optional<std::string>& text) {
  PrefetchChoice choice;
  if (!text) return choice;
  if (*text == PrefetchModeName(PrefetchMode::kDeadlines)) {
    choice.mode = PrefetchMode::kDeadlines;
    return choice;
  }
  const char* const end = text->data() + text->size();
  const auto read = std::from_chars(text->data(), end, choice.depth);
  if (read.ec != std::errc() || read.ptr != end || choice.depth < 0 ||
      choice.depth > kMaxPrefetchDepth) {
    return InvalidArgument(
        fmt::format("--prefetch {}: give a number from 0 to {}, or deadlines",
                    Quoted(*text), kMaxPrefetchDepth));
  }
  return choice;
}

}  // namespace castor
