// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/sealing/chunk_words.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace castor {
namespace {

constexpr std::string_view kWord = "chunk ";

std::string ParamsOf(const ChunkInfo& chunk,
                     const std::function<std::string(ParamId)>& name) {
  if (chunk.params.size() == 1) return name(chunk.params.front());
  return fmt::format("{} to {}", name(chunk.params.front()),
                     name(chunk.params.back()));
}

// How long " (gradient" is where `text` begins with that and a parenthesis; 0
// where it does not.
size_t WordInParentheses(std::string_view text) {
  if (!text.starts_with(" (")) return 0;
  size_t at = 2;
  while (at < text.size() &&
         std::isalpha(static_cast<unsigned char>(text[at])) != 0) {
    ++at;
  }
  return at > 2 && text.substr(at).starts_with(")") ? at : 0;
}

}  // namespace

std::string NameChunks(std::string_view message, const ChunkLayout& layout,
                       const std::function<std::string(ParamId)>& name) {
  std::string named;
  std::set<int32_t> seen;
  bool quoted = false;
  for (size_t at = 0; at < message.size();) {
    const char c = message[at];
    const bool begins_word =
        at == 0 ||
        std::isalnum(static_cast<unsigned char>(message[at - 1])) == 0;
    if (quoted || !begins_word || !message.substr(at).starts_with(kWord)) {
      if (c == '"') quoted = !quoted;
      if (quoted && c == '\\' && at + 1 < message.size()) {
        named += message[at++];
      }
      named += message[at++];
      continue;
    }
    const char* const begin = message.data() + at + kWord.size();
    const char* const end = message.data() + message.size();
    int32_t chunk = -1;
    const char* const stop = std::from_chars(begin, end, chunk).ptr;
    const auto past = static_cast<size_t>(stop - message.data());
    named += message.substr(at, past - at);
    at = past;
    const bool known = stop != begin && chunk >= 0 &&
                       static_cast<size_t>(chunk) < layout.chunks().size() &&
                       !layout.chunk(ChunkId(chunk)).params.empty();
    if (!known || !seen.insert(chunk).second) continue;
    const std::string params = ParamsOf(layout.chunk(ChunkId(chunk)), name);
    const size_t word = WordInParentheses(message.substr(at));
    if (word == 0) {
      named += fmt::format(" ({})", params);
    } else {
      named += fmt::format("{} of {}", message.substr(at, word), params);
      at += word;
    }
  }
  return named;
}

}  // namespace castor
