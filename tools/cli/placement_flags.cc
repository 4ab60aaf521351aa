// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/placement_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "chunk/base/did_you_mean.h"
#include "chunk/base/dtype.h"
#include "chunk/base/quote.h"
#include "chunk/base/tier.h"
#include "placement/run_event.h"
#include "tools/cli/decimal_number.h"
#include "tools/cli/size_text.h"

namespace castor {
namespace {

Status BadValue(std::string_view flag, std::string_view value,
                std::string_view why) {
  return InvalidArgument(fmt::format("{} {}: {}", flag, Quoted(value), why));
}

Result<Tier> ParseTier(std::string_view text) {
  std::vector<std::string> names;
  for (Tier tier : kAllTiers) {
    if (text == TierName(tier)) return tier;
    names.emplace_back(TierName(tier));
  }
  return InvalidArgument(fmt::format("there is no tier {}{}", Quoted(text),
                                     SuggestName(text, names)));
}

constexpr char kAllStates[] = "all";

// Empty: all of them.
Result<std::optional<StateKind>> ParseState(std::string_view text) {
  if (text == kAllStates) return std::optional<StateKind>();
  std::vector<std::string> names = {kAllStates};
  for (int k = 0; k < kStateKinds; ++k) {
    const auto state = static_cast<StateKind>(k);
    if (text == StateKindName(state)) return std::optional(state);
    names.emplace_back(StateKindName(state));
  }
  return InvalidArgument(fmt::format("there is no state {}{}", Quoted(text),
                                     SuggestName(text, names)));
}

Result<StateLimit> ParseAmount(std::string_view text) {
  if (!text.ends_with('%')) {
    CASTOR_ASSIGN_OR_RETURN(const Bytes bytes, ParseSize(text));
    return StateLimit(bytes);
  }
  constexpr int64_t kParts = 1'000'000'000;  // of a hundredth
  std::string_view rest = text;
  CASTOR_ASSIGN_OR_RETURN(const DecimalNumber number, TakeDecimal(&rest));
  const std::optional<int64_t> parts = number.Times(kParts);
  if (rest != "%" || !parts || *parts > 100 * kParts) {
    return InvalidArgument(
        fmt::format("{} is no percentage from 0% to 100%", Quoted(text)));
  }
  return StateLimit(static_cast<double>(*parts) /
                    (100 * static_cast<double>(kParts)));
}

Status AddLimit(std::string_view value, StaticLimits& limits) {
  const size_t at = value.find('@');
  const size_t is = value.find('=', at == value.npos ? 0 : at);
  if (at == value.npos || is == value.npos) {
    return InvalidArgument("write it as STATE@TIER=AMOUNT, param@device=25%");
  }
  CASTOR_ASSIGN_OR_RETURN(const std::optional<StateKind> state,
                          ParseState(value.substr(0, at)));
  CASTOR_ASSIGN_OR_RETURN(const Tier tier,
                          ParseTier(value.substr(at + 1, is - at - 1)));
  CASTOR_ASSIGN_OR_RETURN(const StateLimit limit,
                          ParseAmount(value.substr(is + 1)));
  if (!state && std::holds_alternative<Bytes>(limit)) {
    return InvalidArgument(
        "so many bytes of each state, or of all together? give each state its "
        "own limit, or all a percentage");
  }
  for (size_t k = 0; k < limits.size(); ++k) {
    if (state && static_cast<size_t>(*state) != k) continue;
    std::optional<StateLimit>& of_state = limits[k].on(tier);
    if (of_state) {
      return InvalidArgument(fmt::format(
          "{} on {} was given a limit before",
          StateKindName(static_cast<StateKind>(k)), TierName(tier)));
    }
    of_state = limit;
  }
  return OkStatus();
}

Status TakeCondition(std::string_view text, PlacementRule& rule) {
  const size_t is = text.find('=');
  const std::string_view key = text.substr(0, is);
  const std::vector<std::string> known = {"state", "type", "least", "most"};
  if (is == text.npos ||
      std::find(known.begin(), known.end(), key) == known.end()) {
    return InvalidArgument(fmt::format("there is no condition {}{}",
                                       Quoted(key), SuggestName(key, known)));
  }
  const std::string_view value = text.substr(is + 1);
  if (key == "state") {
    CASTOR_ASSIGN_OR_RETURN(rule.state, ParseState(value));
  } else if (key == "type") {
    rule.dtype = ParseDType(value);
    if (!rule.dtype) {
      return InvalidArgument(fmt::format("there is no type {}", Quoted(value)));
    }
  } else {
    CASTOR_ASSIGN_OR_RETURN(const Bytes bytes, ParseSize(value));
    if (key == "least") {
      rule.least = bytes;
    } else {
      rule.most = bytes;
    }
  }
  return OkStatus();
}

Result<PlacementRule> ParseRule(std::string_view value) {
  const size_t colon = value.find(':');
  if (colon == value.npos) {
    return InvalidArgument("write it as TIER:GLOB, nvme:*.experts.*");
  }
  PlacementRule rule;
  CASTOR_ASSIGN_OR_RETURN(rule.tier, ParseTier(value.substr(0, colon)));
  std::string_view rest = value.substr(colon + 1);
  const auto next = [&rest] {
    const size_t comma = rest.find(',');
    const std::string_view piece = rest.substr(0, comma);
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
    return piece;
  };
  rule.glob = next();
  while (!rest.empty()) CASTOR_RETURN_IF_ERROR(TakeCondition(next(), rule));
  return rule;
}

}  // namespace

Result<StaticLimits> ParseLimitFlag(const std::vector<std::string>& values) {
  StaticLimits limits;
  for (const std::string& value : values) {
    const Status added = AddLimit(value, limits);
    if (!added.ok()) return BadValue("--limit", value, added.message());
  }
  return limits;
}

Result<std::vector<PlacementRule>> ParsePlaceFlag(
    const std::vector<std::string>& values) {
  std::vector<PlacementRule> rules;
  for (const std::string& value : values) {
    Result<PlacementRule> rule = ParseRule(value);
    if (!rule.ok()) return BadValue("--place", value, rule.status().message());
    rules.push_back(*std::move(rule));
  }
  return rules;
}

}  // namespace castor
