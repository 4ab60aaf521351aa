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

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "placement/run_event.h"
#include "tools/commands/diff/diff.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {
namespace {

// What one file has, by name.
using Side = std::vector<std::pair<std::string, Value>>;

// A row for everything that one of them has, in the order of the first; what
// only the second has comes last. `missing` stands for what one lacks.
DiffSection Compare(std::string name, const Side& a, const Side& b,
                    const Value& missing = {}) {
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

// --- Runs --------------------------------------------------------------------

Side Counts(const RunStatistics& run) {
  return {{"ranks", run.world},
          {"stage", run.stage},
          {"chunks", run.chunks},
          {"complete steps", run.complete_steps},
          {"chunks all-gathered", run.copies},
          {"of them ahead of use", run.prefetched_copies},
          {"steps that departed", run.divergences}};
}

Side Times(const RunStatistics& run) {
  return {{"a step", Value::Ns(run.step_ns.median)},
          {"of it stalled", Value::Ns(run.stalled_ns.median)}};
}

// A tier that one run lacks held nothing, and had no budget.
DiffSection DiffTiers(const RunStatistics& a, const RunStatistics& b) {
  const auto on = [](const RunStatistics& run, Tier tier) {
    const auto at = std::ranges::find(run.tiers, tier, &TierStatistics::tier);
    return at == run.tiers.end() ? TierStatistics() : *at;
  };
  const auto budget = [](const TierStatistics& tier) {
    return tier.budget_bytes > 0 ? Value(Bytes(tier.budget_bytes)) : Value();
  };
  DiffSection section{"tiers", {}};
  for (const Tier tier : kAllTiers) {
    const TierStatistics first = on(a, tier);
    const TierStatistics second = on(b, tier);
    const std::string name(TierName(tier));
    if (first.peak_rank < 0 && second.peak_rank < 0) continue;
    section.rows.push_back(
        {name + " peak", Bytes(first.peak_bytes), Bytes(second.peak_bytes)});
    section.rows.push_back({name + " budget", budget(first), budget(second)});
  }
  return section;
}

Side Links(const RunStatistics& run) {
  Side side;
  for (size_t i = 0; i < run.links.size(); ++i) {
    side.emplace_back(LinkName(run.links[i].link),
                      Bytes(run.link_bytes[i].median));
  }
  return side;
}

Side Stalls(const RunStatistics& run) {
  const int64_t steps = std::max<int64_t>(std::ssize(run.steps), 1);
  Side side;
  for (const StallStatistics& stall : run.stalls) {
    side.emplace_back(RunCauseName(stall.cause), Value::Ns(stall.ns / steps));
  }
  return side;
}

// Where transfers of a state begin and end. A state that crosses the drive's
// link lives on the drive, a state that an update fetches from the device on
// the device. A guess may take new states to the drive and back, so its
// transfers count only for states without others. A state without transfers has
// no known home, but for parameters: those were gathered from the device.
using StatesByChunk = std::map<std::pair<int32_t, StateKind>, Tier>;

StatesByChunk HomesBy(const RunRecord& record, bool guesses) {
  StatesByChunk homes;
  for (const RunEvent& event : record.events) {
    if (event.chunk < 0 || (event.cause == RunCause::kGuess) != guesses) {
      continue;
    }
    const std::pair key(event.chunk, event.state);
    if (event.kind == RunEventKind::kGather) {
      homes.try_emplace(key, Tier::kDevice);
      continue;
    }
    if (event.kind != RunEventKind::kTransfer) continue;
    Tier home = Tier::kHost;
    if (event.from == Tier::kNvme || event.to == Tier::kNvme) {
      home = Tier::kNvme;
    } else if (IsOfUpdate(event.cause) || event.from == event.to) {
      home = Tier::kDevice;
    }
    Tier& known = homes.try_emplace(key, home).first->second;
    // The host is on the way between the others.
    const bool of_drive = known == Tier::kNvme || home == Tier::kNvme;
    if (of_drive) {
      known = Tier::kNvme;
    } else if (IsOfUpdate(event.cause)) {
      known = Tier::kDevice;
    } else if (event.state == StateKind::kParam) {
      known = Tier::kHost;
    }
  }
  return homes;
}

StatesByChunk HomesOf(const RunRecord& record) {
  StatesByChunk homes = HomesBy(record, /*guesses=*/false);
  homes.merge(HomesBy(record, /*guesses=*/true));
  return homes;
}

bool SameChunks(const RunRecord& a, const RunRecord& b) {
  if (a.ranks.empty() || b.ranks.empty()) return false;
  const auto& first = a.ranks.front().chunks;
  const auto& second = b.ranks.front().chunks;
  return std::equal(first.begin(), first.end(), second.begin(), second.end(),
                    [](const RunChunkInfo& x, const RunChunkInfo& y) {
                      return x.bytes == y.bytes && x.params == y.params;
                    });
}

// Only what both show, and differs.
DiffSection ChangedHomes(const RunRecord& a, const RunRecord& b) {
  DiffSection section{"homes", {}};
  if (!SameChunks(a, b)) return section;
  const StateNames names = a.states();
  const StateNames others = b.states();
  const StatesByChunk first = HomesOf(a);
  const StatesByChunk second = HomesOf(b);
  for (const auto& [key, home] : first) {
    const auto other = second.find(key);
    if (other == second.end() || other->second == home) continue;
    if (names.of(key.second) != others.of(key.second)) continue;
    section.rows.push_back(
        {fmt::format("chunk {} {}", key.first, names.of(key.second)),
         TierName(home), TierName(other->second)});
  }
  return section;
}

// --- Documents ---------------------------------------------------------------

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
  if (!value.is_int64()) return value.real();
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
      Compare(std::move(name), Side(first.begin(), first.end()),
              Side(second.begin(), second.end()));
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

// --- Layouts -----------------------------------------------------------------

Bytes LargestChunkOf(const ChunkLayout& layout) {
  Bytes largest;
  for (const ChunkInfo& chunk : layout.chunks()) {
    const GroupInfo& group = layout.groups()[static_cast<size_t>(chunk.group)];
    largest = std::max(largest, BytesOf(chunk.size, group.dtype));
  }
  return largest;
}

Side TotalsOf(const LayoutFile& file) {
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

Side PlacesOf(const LayoutFile& file) {
  Side places;
  for (size_t p = 0; p < file.params.size(); ++p) {
    places.emplace_back(file.params[p].name,
                        PlaceText(file.layout.places()[p]));
  }
  return places;
}

}  // namespace

std::vector<DiffSection> DiffRuns(const RunRecord& a, const RunRecord& b,
                                  const StepRange& steps) {
  const RunStatistics first = ComputeRunStatistics(a, steps);
  const RunStatistics second = ComputeRunStatistics(b, steps);
  std::vector<DiffSection> sections = {
      Compare("run", Counts(first), Counts(second)),
      Compare("time", Times(first), Times(second)),
      DiffTiers(first, second),
      Compare("links", Links(first), Links(second), Bytes(0)),
      Compare("stalls", Stalls(first), Stalls(second), Value::Ns(0)),
      ChangedHomes(a, b)};
  std::erase_if(sections, [](const DiffSection& s) { return s.rows.empty(); });
  return sections;
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
