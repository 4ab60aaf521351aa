// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/homes/homes_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "chunk/text/json_value.h"

namespace castor {
namespace {

std::optional<Tier> TierOf(const JsonValue& name) {
  for (const Tier tier : kAllTiers) {
    if (name == JsonValue(TierName(tier))) return tier;
  }
  return std::nullopt;
}

// Empty where `value` is no home.
std::optional<StateHome> HomeOf(const JsonValue& value,
                                const JsonValue& reasons) {
  if (!value.is_array() || value.size() != 3) return std::nullopt;
  const std::optional<Tier> tier = TierOf(value[size_t{0}]);
  const JsonValue& bytes = value[size_t{1}];
  const JsonValue& why = value[size_t{2}];
  if (!tier || !bytes.is_int64() || bytes.integer() < 0 || !why.is_int64() ||
      why.integer() < 0 ||
      static_cast<uint64_t>(why.integer()) >= reasons.size()) {
    return std::nullopt;
  }
  return StateHome{*tier, Bytes(bytes.integer()),
                   reasons[static_cast<size_t>(why.integer())].text()};
}

}  // namespace

std::string WriteHomes(std::span<const HomesOfChunk> chunks,
                       const StateNames& names) {
  std::map<std::string_view, int64_t> numbers;
  JsonValue reasons = JsonValue::Array();
  JsonValue list = JsonValue::Array();
  for (const HomesOfChunk& homes : chunks) {
    JsonValue states = JsonValue::Object();
    for (size_t k = 0; k < kStateKinds; ++k) {
      if (!homes[k]) continue;
      const auto next = static_cast<int64_t>(numbers.size());
      const auto [reason, added] = numbers.try_emplace(homes[k]->why, next);
      if (added) reasons.Append(homes[k]->why);
      JsonValue home = JsonValue::Array();
      home.Append(TierName(homes[k]->tier));
      home.Append(homes[k]->bytes.count());
      home.Append(reason->second);
      states[names.of(static_cast<StateKind>(k))] = std::move(home);
    }
    list.Append(std::move(states));
  }
  return JsonValue::Object({{"schema", kHomesSchema},
                            {"reasons", std::move(reasons)},
                            {"chunks", std::move(list)}})
             .Dump() +
         "\n";
}

Result<std::vector<HomesOfChunk>> ParseHomes(std::string_view text,
                                             const StateNames& names) {
  CASTOR_ASSIGN_OR_RETURN(const JsonValue document, ParseJson(text));
  const auto array = [&](std::string_view key) {
    return document.is_object() && document.contains(key) &&
           document[key].is_array();
  };
  if (!array("reasons") || !array("chunks") || !document.contains("schema") ||
      document["schema"] != JsonValue(kHomesSchema)) {
    return Malformed(
        fmt::format("it is no document of homes: {} with reasons and chunks",
                    kHomesSchema));
  }
  const JsonValue& reasons = document["reasons"];
  if (!std::ranges::all_of(reasons,
                           [](const JsonValue& r) { return r.is_text(); })) {
    return Malformed("one of the reasons of homes is no text");
  }
  std::vector<HomesOfChunk> chunks;
  for (const JsonValue& states : document["chunks"]) {
    HomesOfChunk& homes = chunks.emplace_back();
    bool sane = states.is_object();
    for (size_t i = 0; sane && i < states.size(); ++i) {
      const std::optional<StateKind> state = names.Find(states.keys()[i]);
      sane = state.has_value();
      if (!sane) break;
      std::optional<StateHome>& home = homes[static_cast<size_t>(*state)];
      home = HomeOf(states[states.keys()[i]], reasons);
      sane = home.has_value();
    }
    if (!sane) {
      return Malformed(fmt::format("chunk {} has no homes that make sense",
                                   chunks.size() - 1));
    }
  }
  return chunks;
}

}  // namespace castor
