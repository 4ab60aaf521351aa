// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "tools/commands/diff/diff.h"

namespace castor {
namespace {

using Leaves = std::map<std::string, Value>;

bool IsText(const JsonValue& value) {
  return !value.is_null() && !value.is_number() && !value.is_array() &&
         !value.is_object() && value.Dump().starts_with('"');
}

// What an element of an array is called.
std::string LabelOf(const JsonValue& element, size_t index) {
  const auto text = [&element](std::string_view key) -> std::string {
    if (!element.is_object() || !element.contains(key)) return "";
    return IsText(element[key]) ? element[key].text() : std::string();
  };
  const std::string from = text("from");
  if (!from.empty()) return fmt::format("{} to {}", from, text("to"));
  for (const std::string_view key : {"tier", "name", "cause", "what"}) {
    if (std::string label = text(key); !label.empty()) return label;
  }
  return fmt::format("{}", index);
}

// Of the files themselves, and not of what they say.
bool IsLeftOut(std::string_view key) {
  constexpr std::string_view kKeys[] = {"command", "file", "output", "source"};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

Value LeafOf(const JsonValue& value, std::string_view key) {
  if (value.is_null()) return {};
  if (!value.is_number()) {
    return IsText(value) ? Value::Name(value.text()) : Value(value.boolean());
  }
  if (key.ends_with("seconds")) return Value::Seconds(value.real());
  if (!value.is_integer()) return value.real();
  if (key.ends_with("bytes")) return Bytes(value.integer());
  if (key == "ns" || key.ends_with("_ns")) return Value::Ns(value.integer());
  return value.integer();
}

void Flatten(const JsonValue& value, const std::string& path,
             std::string_view key, Leaves* leaves) {
  const auto below = [&path](std::string_view name) {
    return path.empty() ? std::string(name) : fmt::format("{} {}", path, name);
  };
  if (value.is_object()) {
    for (const std::string& name : value.keys()) {
      if (!IsLeftOut(name)) Flatten(value[name], below(name), name, leaves);
    }
    return;
  }
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      Flatten(value[i], below(LabelOf(value[i], i)), key, leaves);
    }
    return;
  }
  leaves->insert_or_assign(path, LeafOf(value, key));
}

// What differs, and how much does not.
DiffSection SectionOf(std::string name, const Leaves& first,
                      const Leaves& second) {
  DiffSection section =
      Compare(std::move(name), DiffSide(first.begin(), first.end()),
              DiffSide(second.begin(), second.end()));
  const size_t equal = std::erase_if(
      section.rows, [](const DiffRow& row) { return row.equal(); });
  if (equal > 0) {
    section.rows.push_back({"values that are equal", equal, equal});
  }
  return section;
}

bool IsPlain(const JsonValue& value) {
  return !value.is_array() && !value.is_object();
}

Bytes LargestChunkOf(const ChunkLayout& layout) {
  Bytes largest;
  for (const ChunkInfo& chunk : layout.chunks()) {
    const GroupInfo& group = layout.groups()[static_cast<size_t>(chunk.group)];
    largest = std::max(largest, BytesOf(chunk.size, group.dtype));
  }
  return largest;
}

DiffSide TotalsOf(const LayoutFile& file) {
  const ChunkLayout& layout = file.layout;
  const Bytes all = layout.allocated_bytes();
  return {{"ranks", layout.world()},
          {"parameters", file.params.size()},
          {"groups", layout.groups().size()},
          {"chunks", layout.chunks().size()},
          {"largest chunk", LargestChunkOf(layout)},
          {"all chunks", all},
          {"of them wasted", all - layout.payload_bytes()}};
}

std::string PlaceText(const ParamPlace& place) {
  if (!place.chunk.valid()) return "nowhere";
  return fmt::format("chunk {} at {}", place.chunk.value(),
                     place.offset.count());
}

DiffSide PlacesOf(const LayoutFile& file) {
  DiffSide places;
  for (size_t p = 0; p < file.params.size(); ++p) {
    places.emplace_back(file.params[p].name,
                        PlaceText(file.layout.places()[p]));
  }
  return places;
}

}  // namespace

DiffSection Compare(std::string name, const DiffSide& a, const DiffSide& b,
                    const Value& missing) {
  const std::map<std::string_view, Value> first(a.begin(), a.end());
  const std::map<std::string_view, Value> second(b.begin(), b.end());
  DiffSection section{std::move(name), {}};
  for (const auto& [what, value] : a) {
    const auto other = second.find(what);
    section.rows.push_back(
        {what, value, other == second.end() ? missing : other->second});
  }
  for (const auto& [what, value] : b) {
    if (!first.contains(what)) section.rows.push_back({what, missing, value});
  }
  return section;
}

std::vector<DiffSection> DiffDocuments(const JsonValue& a, const JsonValue& b) {
  std::vector<std::string> names = a.keys();
  for (const std::string& name : b.keys()) {
    if (!a.contains(name)) names.push_back(name);
  }
  const JsonValue null;
  Leaves plain_first;
  Leaves plain_second;
  std::vector<DiffSection> sections(1);
  for (const std::string& name : names) {
    if (IsLeftOut(name) || name == "schema") continue;
    const JsonValue& x = a.contains(name) ? a[name] : null;
    const JsonValue& y = b.contains(name) ? b[name] : null;
    if (IsPlain(x) && IsPlain(y)) {
      Flatten(x, name, name, &plain_first);
      Flatten(y, name, name, &plain_second);
      continue;
    }
    Leaves first;
    Leaves second;
    Flatten(x, "", name, &first);
    Flatten(y, "", name, &second);
    // One has a plain value in its place.
    first.erase("");
    second.erase("");
    sections.push_back(SectionOf(name, first, second));
  }
  sections.front() = SectionOf("values", plain_first, plain_second);
  std::erase_if(sections, [](const DiffSection& s) { return s.rows.empty(); });
  return sections;
}

std::vector<DiffSection> DiffLayouts(const LayoutFile& a, const LayoutFile& b) {
  std::vector<DiffSection> sections = {
      Compare("layout", TotalsOf(a), TotalsOf(b)),
      Compare("parameters that lie elsewhere", PlacesOf(a), PlacesOf(b))};
  std::vector<DiffRow>& moved = sections.back().rows;
  std::erase_if(moved, [](const DiffRow& row) { return row.equal(); });
  if (moved.empty()) sections.pop_back();
  return sections;
}

}  // namespace castor
