// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "tools/commands/diff/diff.h"

namespace castor {
namespace {

struct Leaf {
  std::string unit;
  Value value;
};
using Leaves = std::map<std::string, Leaf>;

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

Leaf LeafOf(const JsonValue& value, std::string_view key) {
  if (value.is_null()) return {};
  if (!value.is_number()) {
    return {"",
            IsText(value) ? Value::Name(value.text()) : Value(value.boolean())};
  }
  if (key.ends_with("seconds"))
    return {"_seconds", Value::Seconds(value.real())};
  if (!value.is_integer()) return {"", value.real()};
  if (key.ends_with("bytes")) return {"_bytes", Bytes(value.integer())};
  if (key == "ns" || key.ends_with("_ns")) {
    return {"_ns", Value::Ns(value.integer())};
  }
  return {"", value.integer()};
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

DiffSection SectionOf(std::string name, const Leaves& first,
                      const Leaves& second) {
  DiffSection section{std::move(name), {}};
  int64_t equal = 0;
  const auto add = [&](const std::string& what, const Leaf& x, const Leaf& y) {
    DiffRow row{what, x.unit.empty() ? y.unit : x.unit, x.value, y.value};
    if (row.equal()) {
      ++equal;
    } else {
      section.rows.push_back(std::move(row));
    }
  };
  for (const auto& [what, leaf] : first) {
    const auto other = second.find(what);
    add(what, leaf, other == second.end() ? Leaf() : other->second);
  }
  for (const auto& [what, leaf] : second) {
    if (!first.contains(what)) add(what, Leaf(), leaf);
  }
  if (equal > 0) {
    section.rows.push_back({"values that are equal", "", equal, equal});
  }
  return section;
}

bool IsPlain(const JsonValue& value) {
  return !value.is_array() && !value.is_object();
}

}  // namespace

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

}  // namespace castor
