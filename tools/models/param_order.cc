// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/param_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chunk/text/did_you_mean.h"
#include "chunk/text/quote.h"

namespace castor {
namespace {

constexpr size_t kUnknown = std::numeric_limits<size_t>::max();

// Where the family has a file's names. Files of the bare model leave the prefix
// out, and files of other versions spell some names in another way.
class Positions {
 public:
  explicit Positions(const FamilyModel& family) : family_(family) {
    for (size_t i = 0; i < family.params.size(); ++i) {
      const std::string_view name = family.params[i].name;
      positions_.emplace(name, i);
      if (name.starts_with(family.base_prefix)) {
        positions_.emplace(name.substr(family.base_prefix.size()), i);
      }
    }
  }

  size_t Find(const std::string& name) const {
    const auto found = positions_.find(name);
    if (found != positions_.end()) return found->second;
    std::string listed = name;
    for (const Spelling& spelling : family_.spellings) {
      const size_t at = listed.find(spelling.file);
      if (at == listed.npos) continue;
      listed.replace(at, spelling.file.size(), spelling.listed);
    }
    const auto respelled = positions_.find(listed);
    return respelled == positions_.end() ? kUnknown : respelled->second;
  }

 private:
  const FamilyModel& family_;
  std::unordered_map<std::string_view, size_t> positions_;
};

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

// The shapes of a file's tensors by the names that the family has for them.
using Held = std::unordered_map<std::string_view, std::vector<int64_t>>;

// Why the model does not have `spec`, which the file holds: it shares another's
// parameter and the shapes allow it, or belongs to a part that is left out. The
// first of several that share one stands for it where the file leaves it out.
std::optional<std::string> AbsenceReason(const FamilyModel& family,
                                         const ParamSpec& spec, Held* held) {
  for (const TiedName& tied : family.tied) {
    if (spec.name != tied.name) continue;
    const auto [kept, is_first] = held->emplace(tied.to, spec.shape);
    if (!is_first && kept->second == spec.shape) return "tied to " + tied.to;
  }
  for (const std::string& prefix : family.ignored_prefixes) {
    if (spec.name.starts_with(prefix)) {
      return fmt::format("in {}*, which the model does not have", prefix);
    }
  }
  return std::nullopt;
}

std::string Nearest(std::string_view name,
                    const std::vector<std::string>& known) {
  const std::optional<std::string> nearest = NearestName(name, known);
  return nearest ? fmt::format(", the nearest being {}", Quoted(*nearest)) : "";
}

}  // namespace

void DropAbsent(const FamilyModel& family, ModelList& list) {
  const Positions positions(family);
  std::vector<bool> known;
  Held held;
  for (const ParamSpec& spec : list.params) {
    const size_t position = positions.Find(spec.name);
    known.push_back(position != kUnknown);
    if (known.back()) held.emplace(family.params[position].name, spec.shape);
  }
  if (held.empty()) return;
  std::vector<ParamSpec> params;
  for (size_t i = 0; i < known.size(); ++i) {
    ParamSpec& spec = list.params[i];
    std::optional<std::string> reason;
    if (!known[i]) reason = AbsenceReason(family, spec, &held);
    if (reason) {
      list.dropped.push_back({std::move(spec.name), *std::move(reason)});
    } else {
      params.push_back(std::move(spec));
    }
  }
  list.params = std::move(params);
}

bool ApplyFamilyOrder(const FamilyModel& family, ModelList& list) {
  DropAbsent(family, list);
  const Positions positions(family);
  struct Placed {
    size_t position;
    ParamSpec spec;
  };
  std::vector<size_t> position_of;
  size_t known = 0;
  for (const ParamSpec& spec : list.params) {
    position_of.push_back(positions.Find(spec.name));
    if (position_of.back() != kUnknown) ++known;
  }
  if (known == 0) return false;

  std::vector<Placed> placed;
  std::vector<bool> seen(family.params.size());
  Finding other_shape;
  Finding unknown;
  for (size_t i = 0; i < list.params.size(); ++i) {
    ParamSpec& spec = list.params[i];
    if (position_of[i] == kUnknown) {
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

Status ApplyTraceOrder(const TraceFile& trace, ModelList& list) {
  if (trace.params.empty()) {
    return Malformed(
        "the trace does not name its parameters, so it tells no order of them; "
        "record one with train_gpt --trace, or ZeroEngine::RecordedTrace of "
        "parameters with names of their own");
  }
  std::unordered_map<std::string_view, size_t> place;
  for (size_t i = 0; i < trace.params.size(); ++i) place[trace.params[i]] = i;
  std::vector<std::string> names;
  for (const ParamSpec& spec : list.params) names.push_back(spec.name);
  for (const std::string& name : names) {
    if (place.contains(name)) continue;
    return Malformed(fmt::format(
        "the trace lacks parameter {} of the model{}: it was recorded of "
        "another one",
        Quoted(name), Nearest(name, trace.params)));
  }
  // Names of a model may stand for more than one tensor, names of a trace not.
  std::vector<bool> found(trace.params.size(), false);
  for (const std::string& name : names) found[place[name]] = true;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i]) continue;
    return Malformed(fmt::format(
        "the trace has parameter {}, which the model has not{}: it was "
        "recorded of another one",
        Quoted(trace.params[i]), Nearest(trace.params[i], names)));
  }
  std::vector<size_t> order(list.params.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const size_t first = place[names[a]];
    const size_t second = place[names[b]];
    return first != second ? first < second : a < b;
  });
  std::vector<ParamSpec> sorted;
  sorted.reserve(order.size());
  for (size_t i : order) sorted.push_back(std::move(list.params[i]));
  list.params = std::move(sorted);
  list.order = ParamOrder::kTrace;
  return OkStatus();
}

}  // namespace castor
