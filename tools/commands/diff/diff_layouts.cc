// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/diff/diff_layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"

namespace castor {
namespace {

Bytes LargestChunkOf(const ChunkLayout& layout) {
  Bytes largest;
  for (const ChunkInfo& chunk : layout.chunks()) {
    const GroupInfo& group = layout.groups()[static_cast<size_t>(chunk.group)];
    largest = std::max(largest, BytesOf(chunk.size, group.dtype));
  }
  return largest;
}

std::string PlaceText(const ParamPlace& place) {
  if (!place.chunk.valid()) return "nowhere";
  return fmt::format("chunk {} at {}", place.chunk.value(),
                     place.offset.count());
}

std::map<std::string, std::string> PlacesOf(const LayoutFile& file) {
  std::map<std::string, std::string> places;
  for (size_t p = 0; p < file.params.size(); ++p) {
    places[file.params[p].name] = PlaceText(file.layout.places()[p]);
  }
  return places;
}

}  // namespace

std::vector<DiffSection> DiffLayouts(const LayoutFile& a, const LayoutFile& b) {
  const auto row = [](std::string what, DiffUnit unit, int64_t first,
                      int64_t second) {
    return DiffRow{std::move(what), unit, first, second};
  };
  const ChunkLayout& x = a.layout;
  const ChunkLayout& y = b.layout;
  DiffSection whole{"layout", {}};
  whole.rows = {row("ranks", DiffUnit::kNone, x.world(), y.world()),
                row("parameters", DiffUnit::kNone, std::ssize(a.params),
                    std::ssize(b.params)),
                row("groups", DiffUnit::kNone, std::ssize(x.groups()),
                    std::ssize(y.groups())),
                row("chunks", DiffUnit::kNone, std::ssize(x.chunks()),
                    std::ssize(y.chunks())),
                row("largest chunk", DiffUnit::kBytes,
                    LargestChunkOf(x).count(), LargestChunkOf(y).count()),
                row("all chunks", DiffUnit::kBytes, x.allocated_bytes().count(),
                    y.allocated_bytes().count()),
                row("of them wasted", DiffUnit::kBytes,
                    (x.allocated_bytes() - x.payload_bytes()).count(),
                    (y.allocated_bytes() - y.payload_bytes()).count())};
  DiffSection moved{"parameters that lie elsewhere", {}};
  const std::map<std::string, std::string> second = PlacesOf(b);
  const std::map<std::string, std::string> first = PlacesOf(a);
  for (const ParamSpec& spec : a.params) {
    const auto there = second.find(spec.name);
    DiffRow one{spec.name, DiffUnit::kNone, first.at(spec.name), {}};
    if (there != second.end()) one.b = there->second;
    if (!one.equal()) moved.rows.push_back(std::move(one));
  }
  for (const ParamSpec& spec : b.params) {
    if (first.contains(spec.name)) continue;
    moved.rows.push_back(
        {spec.name, DiffUnit::kNone, {}, second.at(spec.name)});
  }
  std::vector<DiffSection> sections = {std::move(whole)};
  if (!moved.rows.empty()) sections.push_back(std::move(moved));
  return sections;
}

}  // namespace castor
