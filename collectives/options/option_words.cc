// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/options/option_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/text/did_you_mean.h"
#include "chunk/text/quantity_text.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"

namespace castor {
namespace {

// The parts of a hundredth that percentages are counted in.
constexpr int64_t kParts = 1'000'000'000;
constexpr char kAllStates[] = "all";

Status Wrong(std::string_view value, std::string_view why) {
  return InvalidArgument(fmt::format("{}: {}", Quoted(value), why));
}

Result<Tier> ReadTier(std::string_view text) {
  std::vector<std::string> names;
  for (const Tier tier : kAllTiers) {
    if (text == TierName(tier)) return tier;
    names.emplace_back(TierName(tier));
  }
  return InvalidArgument(fmt::format("there is no tier {}{}", Quoted(text),
                                     SuggestName(text, names)));
}

// Empty: all of them.
Result<std::optional<StateKind>> ReadState(std::string_view text) {
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

Result<StateLimit> ReadAmount(std::string_view text) {
  if (!text.ends_with('%')) {
    CASTOR_ASSIGN_OR_RETURN(const Bytes bytes, ParseSize(text));
    return StateLimit(bytes);
  }
  std::string_view rest = text;
  CASTOR_ASSIGN_OR_RETURN(const DecimalNumber number, TakeDecimal(&rest));
  const std::optional<int64_t> parts = number.Times(kParts);
  if (rest != "%" || !parts || *parts > 100 * kParts) {
    return InvalidArgument(
        fmt::format("{} is no percentage from 0% to 100%", Quoted(text)));
  }
  return StateLimit(static_cast<double>(*parts) / (100.0 * kParts));
}

// What ReadAmount reads back as it is.
std::string AmountText(const StateLimit& limit) {
  if (const Bytes* const bytes = std::get_if<Bytes>(&limit)) {
    return FormatSizeExact(*bytes);
  }
  const int64_t parts = std::llround(std::get<double>(limit) * 100.0 * kParts);
  std::string text = fmt::format("{}.{:09}", parts / kParts, parts % kParts);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text + '%';
}

Status ReadLimit(std::string_view text, std::optional<StaticLimits>* limits) {
  const size_t at = text.find('@');
  const size_t is = text.find('=', at == text.npos ? 0 : at);
  if (at == text.npos || is == text.npos) {
    return InvalidArgument("write it as STATE@TIER=AMOUNT, param@device=25%");
  }
  CASTOR_ASSIGN_OR_RETURN(const std::optional<StateKind> state,
                          ReadState(text.substr(0, at)));
  CASTOR_ASSIGN_OR_RETURN(const Tier tier,
                          ReadTier(text.substr(at + 1, is - at - 1)));
  CASTOR_ASSIGN_OR_RETURN(const StateLimit limit,
                          ReadAmount(text.substr(is + 1)));
  if (state) return AddLimit(*state, tier, limit, limits);
  if (std::holds_alternative<Bytes>(limit)) {
    return InvalidArgument(
        "so many bytes of each state, or of all together? give each state its "
        "own limit, or all a percentage");
  }
  for (int k = 0; k < kStateKinds; ++k) {
    CASTOR_RETURN_IF_ERROR(
        AddLimit(static_cast<StateKind>(k), tier, limit, limits));
  }
  return OkStatus();
}

Status ReadCondition(std::string_view text, PlacementRule& rule) {
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
    CASTOR_ASSIGN_OR_RETURN(rule.state, ReadState(value));
  } else if (key == "type") {
    rule.dtype = ParseDType(value);
    if (!rule.dtype) {
      return InvalidArgument(fmt::format("there is no type {}", Quoted(value)));
    }
  } else if (key == "least") {
    CASTOR_ASSIGN_OR_RETURN(rule.least, ParseSize(value));
  } else {
    CASTOR_ASSIGN_OR_RETURN(rule.most, ParseSize(value));
  }
  return OkStatus();
}

Result<PlacementRule> ReadRule(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == text.npos) {
    return InvalidArgument("write it as TIER:GLOB, nvme:*.experts.*");
  }
  PlacementRule rule;
  CASTOR_ASSIGN_OR_RETURN(rule.tier, ReadTier(text.substr(0, colon)));
  std::string_view rest = text.substr(colon + 1);
  const auto next = [&rest] {
    const size_t comma = rest.find(',');
    const std::string_view piece = rest.substr(0, comma);
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
    return piece;
  };
  rule.glob = next();
  while (!rest.empty()) CASTOR_RETURN_IF_ERROR(ReadCondition(next(), rule));
  return rule;
}

Result<NvmeOption> ReadDrive(std::string_view text) {
  if (text.empty()) return InvalidArgument("it names no directory");
  const size_t colon = text.rfind(':');
  std::error_code ignored;
  if (colon == text.npos || std::filesystem::is_directory(text, ignored)) {
    return NvmeOption{text, std::nullopt};
  }
  if (colon == 0) {
    return InvalidArgument("no directory stands before the colon");
  }
  const Result<Bytes> size = ParseSize(text.substr(colon + 1));
  if (!size.ok()) {
    return InvalidArgument(
        fmt::format("there is no such directory, so a size is expected after "
                    "the last colon: {}",
                    size.status().message()));
  }
  if (*size == Bytes(0)) {
    return InvalidArgument(
        "a drive that may hold nothing is of no use: give it a size, or leave "
        "the size away for what is needed");
  }
  return NvmeOption{text.substr(0, colon), *size};
}

}  // namespace

Status ParseDrive(std::string_view text, std::vector<NvmeOption>* drives) {
  Result<NvmeOption> drive = ReadDrive(text);
  if (!drive.ok()) return Wrong(text, drive.status().message());
  std::error_code ignored;
  const auto real = [&](const NvmeOption& option) {
    return std::filesystem::weakly_canonical(option.directory, ignored);
  };
  for (const NvmeOption& other : *drives) {
    if (real(other) != real(*drive)) continue;
    return Wrong(text,
                 "this directory was given before: give each drive once, with "
                 "all that may go there");
  }
  drives->push_back(*std::move(drive));
  return OkStatus();
}

Result<std::vector<NvmeOption>> ParseNvmeFlag(
    const std::vector<std::string>& values) {
  std::vector<NvmeOption> drives;
  for (const std::string& value : values) {
    CASTOR_RETURN_IF_ERROR(ParseDrive(value, &drives).WithContext("--nvme"));
  }
  return drives;
}

Status AddLimit(StateKind state, Tier tier, const StateLimit& limit,
                std::optional<StaticLimits>* limits) {
  if (!*limits) limits->emplace();
  std::optional<StateLimit>& place =
      (**limits)[static_cast<size_t>(state)].on(tier);
  if (place) {
    return InvalidArgument(fmt::format("{} on {} was given a limit before",
                                       StateKindName(state), TierName(tier)));
  }
  place = limit;
  return OkStatus();
}

Status ParseLimit(std::string_view text, std::optional<StaticLimits>* limits) {
  const Status read = ReadLimit(text, limits);
  return read.ok() ? read : Wrong(text, read.message());
}

std::vector<std::string> LimitWords(const std::optional<StaticLimits>& limits) {
  std::vector<std::string> words;
  if (!limits) return words;
  for (const Tier tier : kAllTiers) {
    const std::optional<StateLimit>& first = limits->front().on(tier);
    const bool alike = first && std::holds_alternative<double>(*first) &&
                       std::all_of(limits->begin(), limits->end(),
                                   [&](const StateLimits& of_state) {
                                     return of_state.on(tier) == first;
                                   });
    for (size_t k = 0; k < (alike ? 1 : limits->size()); ++k) {
      const std::optional<StateLimit>& limit = (*limits)[k].on(tier);
      if (!limit) continue;
      words.push_back(
          fmt::format("{}@{}={}",
                      alike ? std::string_view(kAllStates)
                            : StateKindName(static_cast<StateKind>(k)),
                      TierName(tier), AmountText(*limit)));
    }
  }
  return words;
}

Status ParseRule(std::string_view text, std::vector<PlacementRule>* rules) {
  Result<PlacementRule> rule = ReadRule(text);
  if (!rule.ok()) return Wrong(text, rule.status().message());
  rules->push_back(*std::move(rule));
  return OkStatus();
}

std::vector<std::string> RuleWords(const std::vector<PlacementRule>& rules) {
  std::vector<std::string> words;
  for (const PlacementRule& rule : rules) {
    CASTOR_CHECK(!rule.decide);
    std::string text = fmt::format("{}:{}", TierName(rule.tier), rule.glob);
    if (rule.state)
      text += fmt::format(",state={}", StateKindName(*rule.state));
    if (rule.dtype) text += fmt::format(",type={}", DTypeName(*rule.dtype));
    if (rule.least > Bytes(0)) {
      text += fmt::format(",least={}", FormatSizeExact(rule.least));
    }
    if (rule.most) text += fmt::format(",most={}", FormatSizeExact(*rule.most));
    words.push_back(std::move(text));
  }
  return words;
}

}  // namespace castor
