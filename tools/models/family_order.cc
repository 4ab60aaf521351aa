// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/family_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "tools/cli/quote.h"
#include "tools/models/natural_order.h"

namespace castor {
namespace {

constexpr size_t kUnknown = std::numeric_limits<size_t>::max();

// Both spellings of every name: files of the bare model leave the prefix out.
std::unordered_map<std::string_view, size_t> Positions(
    const FamilyModel& family) {
  std::unordered_map<std::string_view, size_t> positions;
  for (size_t i = 0; i < family.params.size(); ++i) {
    const std::string_view name = family.params[i].name;
    positions.emplace(name, i);
    if (name.starts_with(family.base_prefix)) {
      positions.emplace(name.substr(family.base_prefix.size()), i);
    }
  }
  return positions;
}

// What is first found wrong, and how often.
struct Finding {
  size_t count = 0;
  std::string first;

  void Add(std::string text) {
    if (count++ == 0) first = std::move(text);
  }
  std::string Text() const {
    return count == 1 ? first : fmt::format("{} and {} more", first, count - 1);
  }
};

// The config ties `spec` to another parameter, and the shapes allow it.
bool IsTied(const FamilyModel& family, const ParamSpec& spec) {
  if (family.tied_name.empty() || spec.name != family.tied_name) return false;
  const auto kept = std::find_if(
      family.params.begin(), family.params.end(),
      [&](const ParamSpec& param) { return param.name == family.tied_to; });
  return kept != family.params.end() && kept->shape == spec.shape;
}

}  // namespace

bool ApplyFamilyOrder(const FamilyModel& family, ModelList& list) {
  const auto positions = Positions(family);
  struct Placed {
    size_t position;
    ParamSpec spec;
  };
  std::vector<size_t> position_of;
  size_t known = 0;
  for (const ParamSpec& spec : list.params) {
    const auto found = positions.find(spec.name);
    position_of.push_back(found == positions.end() ? kUnknown : found->second);
    if (found != positions.end()) ++known;
  }
  if (known == 0) return false;

  std::vector<Placed> placed;
  std::vector<bool> seen(family.params.size());
  Finding other_shape;
  Finding unknown;
  for (size_t i = 0; i < list.params.size(); ++i) {
    ParamSpec& spec = list.params[i];
    if (position_of[i] == kUnknown) {
      if (IsTied(family, spec)) {
        list.dropped.push_back(
            {std::move(spec.name), "tied to " + family.tied_to});
        continue;
      }
      unknown.Add(Quoted(spec.name));
    } else {
      const ParamSpec& expected = family.params[position_of[i]];
      seen[position_of[i]] = true;
      if (spec.shape != expected.shape) {
        other_shape.Add(fmt::format(
            "{} is [{}] in the file and [{}] in the config", Quoted(spec.name),
            fmt::join(spec.shape, ","), fmt::join(expected.shape, ",")));
      }
    }
    placed.push_back({position_of[i], std::move(spec)});
  }
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    if (a.position != b.position) return a.position < b.position;
    return NaturalLess(a.spec.name, b.spec.name);
  });
  list.params.clear();
  for (Placed& entry : placed) list.params.push_back(std::move(entry.spec));

  Finding missing;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (!seen[i]) missing.Add(Quoted(family.params[i].name));
  }
  if (unknown.count > 0) {
    list.notes.push_back(
        fmt::format("the config's family {} does not know {}: placed last",
                    family.family, unknown.Text()));
  }
  if (missing.count > 0) {
    list.notes.push_back(
        fmt::format("the config describes what the file does not hold: {}",
                    missing.Text()));
  }
  if (other_shape.count > 0) {
    list.notes.push_back(fmt::format("shapes differ, the file's are used: {}",
                                     other_shape.Text()));
  }
  return true;
}

}  // namespace castor
