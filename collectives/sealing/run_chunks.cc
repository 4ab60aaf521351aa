// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/sealing/run_chunks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"

namespace castor {
namespace {

// A record takes so many bytes of a chunk's names, and so many in all.
constexpr size_t kMostOfChunk = 60'000;
constexpr size_t kMostOfAll = size_t{8} << 20;
constexpr size_t kFew = 3;

// Joins names up to `most` bytes, one at least, and counts the others.
std::string Joined(std::span<const std::string_view> names, size_t most,
                   int64_t more = 0) {
  std::string text;
  size_t i = 0;
  for (; i < names.size(); ++i) {
    if (i > 0 && text.size() + 1 + names[i].size() > most) break;
    if (i > 0) text += ',';
    text += names[i];
  }
  more += static_cast<int64_t>(names.size() - i);
  if (more > 0) text += fmt::format(",+{}", more);
  return text;
}

// How many names the count at the end stands for; 0 where there is none.
int64_t CountedNames(std::string_view last) {
  int64_t count = 0;
  if (last.size() < 2 || last[0] != '+') return 0;
  const char* const end = last.data() + last.size();
  const auto [stop, error] = std::from_chars(last.data() + 1, end, count);
  return error == std::errc() && stop == end && count > 0 ? count : 0;
}

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) parts.push_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

}  // namespace

std::vector<RunChunkInfo> RunChunksOf(const ChunkLayout& layout,
                                      std::span<const std::string_view> names) {
  std::vector<RunChunkInfo> chunks;
  chunks.reserve(layout.chunks().size());
  const size_t most = std::min(
      kMostOfChunk, kMostOfAll / std::max<size_t>(layout.chunks().size(), 1));
  for (const ChunkInfo& info : layout.chunks()) {
    const GroupInfo& group = layout.groups()[static_cast<size_t>(info.group)];
    std::vector<std::string_view> of_chunk;
    for (const ParamId param : info.params) {
      of_chunk.push_back(names[param.index()]);
    }
    chunks.push_back({.bytes = BytesOf(info.size, group.dtype).count(),
                      .params = Joined(of_chunk, most)});
  }
  return chunks;
}

std::vector<std::string_view> ListedNames(std::string_view params) {
  std::vector<std::string_view> names = Split(params);
  if (!names.empty() && CountedNames(names.back()) > 0) names.pop_back();
  return names;
}

std::string FewNames(std::string_view params) {
  const std::vector<std::string_view> parts = Split(params);
  const std::vector<std::string_view> names = ListedNames(params);
  const size_t few = std::min(kFew, names.size());
  int64_t more = static_cast<int64_t>(names.size() - few);
  if (names.size() < parts.size()) more += CountedNames(parts.back());
  return Joined(std::span(names).first(few), std::string::npos, more);
}

}  // namespace castor
