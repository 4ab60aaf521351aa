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
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/text/did_you_mean.h"
#include "chunk/text/quantity_text.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "placement/homes/static_policy.h"
#include "placement/state_kind.h"

namespace castor {
namespace {

// The parts of a hundredth that percentages are counted in.
constexpr int64_t kParts = 1'000'000'000;

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

Status ReadLimit(std::string_view text, HomeLimits* limits) {
  const size_t at = text.find('@');
  const size_t is = text.find('=', at == text.npos ? 0 : at);
  if (at == text.npos || is == text.npos) {
    return InvalidArgument("write it as STATE@TIER=AMOUNT, param@device=25%");
  }
  HomeLimit limit;
  limit.state = text.substr(0, at);
  CASTOR_RETURN_IF_ERROR(CheckStateWord(limit.state));
  CASTOR_ASSIGN_OR_RETURN(limit.tier,
                          ReadTier(text.substr(at + 1, is - at - 1)));
  CASTOR_ASSIGN_OR_RETURN(limit.amount, ReadAmount(text.substr(is + 1)));
  return AddLimit(std::move(limit), limits);
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
    CASTOR_RETURN_IF_ERROR(CheckStateWord(value));
    if (value != kAllStates) rule.state = value;
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

Status CheckStateWord(std::string_view text) {
  if (IsStateName(text)) return OkStatus();
  return InvalidArgument(
      fmt::format("{} names no state: letters, digits and underscores do, at "
                  "most {} of them",
                  Quoted(text), kMaxStateNameBytes));
}

Status AddLimit(HomeLimit limit, HomeLimits* limits) {
  if (limit.state == kAllStates &&
      std::holds_alternative<Bytes>(limit.amount)) {
    return InvalidArgument(
        "so many bytes of each state, or of all together? give each state its "
        "own limit, or all a percentage");
  }
  if (!*limits) limits->emplace();
  return AddHomeLimit(std::move(limit), &**limits);
}

Status ParseLimit(std::string_view text, HomeLimits* limits) {
  const Status read = ReadLimit(text, limits);
  return read.ok() ? read : Wrong(text, read.message());
}

std::vector<std::string> LimitWords(const HomeLimits& limits) {
  std::vector<std::string> words;
  if (!limits) return words;
  for (const HomeLimit& limit : *limits) {
    words.push_back(fmt::format("{}@{}={}", limit.state, TierName(limit.tier),
                                AmountText(limit.amount)));
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
    if (rule.state) text += fmt::format(",state={}", *rule.state);
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
