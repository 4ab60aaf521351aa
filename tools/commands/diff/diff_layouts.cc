// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "tools/commands/diff/diff.h"

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
  const ChunkLayout& x = a.layout;
  const ChunkLayout& y = b.layout;
  std::vector<DiffSection> sections = {
      {"layout",
       {{"ranks", "", x.world(), y.world()},
        {"parameters", "", std::ssize(a.params), std::ssize(b.params)},
        {"groups", "", std::ssize(x.groups()), std::ssize(y.groups())},
        {"chunks", "", std::ssize(x.chunks()), std::ssize(y.chunks())},
        {"largest chunk", "_bytes", LargestChunkOf(x), LargestChunkOf(y)},
        {"all chunks", "_bytes", x.allocated_bytes(), y.allocated_bytes()},
        {"of them wasted", "_bytes", x.allocated_bytes() - x.payload_bytes(),
         y.allocated_bytes() - y.payload_bytes()}}}};
  DiffSection moved{"parameters that lie elsewhere", {}};
  const std::map<std::string, std::string> first = PlacesOf(a);
  const std::map<std::string, std::string> second = PlacesOf(b);
  for (const ParamSpec& spec : a.params) {
    const auto there = second.find(spec.name);
    DiffRow row{spec.name, "", first.at(spec.name), {}};
    if (there != second.end()) row.b = there->second;
    if (!row.equal()) moved.rows.push_back(std::move(row));
  }
  for (const ParamSpec& spec : b.params) {
    if (first.contains(spec.name)) continue;
    moved.rows.push_back({spec.name, "", {}, second.at(spec.name)});
  }
  if (!moved.rows.empty()) sections.push_back(std::move(moved));
  return sections;
}

}  // namespace castor
