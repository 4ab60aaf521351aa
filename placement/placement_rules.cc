// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/placement_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/text/did_you_mean.h"
#include "chunk/text/glob.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"

namespace castor {
namespace {

// A rule with its pattern read and its state found.
class Matcher {
 public:
  Matcher(const PlacementRule& rule, std::optional<StateKind> state)
      : rule_(rule), state_(state), glob_(rule.glob) {}

  // All conditions but the state's.
  bool Admits(const ParamSpec& spec, Bytes size) const {
    return (!rule_.dtype || *rule_.dtype == spec.dtype) &&
           size >= rule_.least && (!rule_.most || size <= *rule_.most) &&
           glob_.Matches(spec.name);
  }

  std::optional<Tier> Decide(const ParamSpec& spec, StateKind state) const {
    if (state_ && *state_ != state) return std::nullopt;
    return rule_.decide ? rule_.decide(spec, state) : rule_.tier;
  }

 private:
  const PlacementRule& rule_;
  std::optional<StateKind> state_;  // empty: every state
  Glob glob_;
};

Result<Matcher> MatcherOf(size_t index, const PlacementRule& rule,
                          const StateNames& names) {
  if (!rule.state) return Matcher(rule, std::nullopt);
  const std::optional<StateKind> state = names.Find(*rule.state);
  if (state) return Matcher(rule, state);
  return InvalidArgument(fmt::format(
      "rule {} ({}) is for state {}, and the optimizer keeps {}{}", index,
      RuleText(rule), Quoted(*rule.state),
      names.optimizer_states() == 0
          ? std::string("no state of its own")
          : fmt::format("{}", fmt::join(names.of_optimizer(), ", ")),
      SuggestName(*rule.state, names.all())));
}

Status MatchesNothing(size_t index, const PlacementRule& rule,
                      std::span<const ParamSpec> params) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : params) names.push_back(spec.name);
  const std::optional<std::string> nearest = NearestName(rule.glob, names);
  return InvalidArgument(fmt::format(
      "rule {} ({}) matches none of the {} parameters{}", index, RuleText(rule),
      params.size(),
      nearest ? fmt::format("; is {} meant?", Quoted(*nearest))
              : std::string("; a pattern is matched with the whole name, and "
                            "* stands for any characters")));
}

// Gives the chunk's state what rule `index` says of `param`.
Status Bind(StateBinding now, ChunkId chunk, StateKind state,
            std::span<const PlacementRule> rules,
            std::span<const ParamSpec> params, const StateNames& names,
            StateBinding& bound) {
  if (bound.rule < 0) {
    bound = now;
    return OkStatus();
  }
  if (bound.tier == now.tier) return OkStatus();
  const auto says = [&](const StateBinding& b) {
    return fmt::format("rule {} ({}) puts {} of {} on {}", b.rule,
                       RuleText(rules[static_cast<size_t>(b.rule)]),
                       names.of(state), Quoted(params[b.param.index()].name),
                       TierName(b.tier));
  };
  return InvalidArgument(fmt::format(
      "{}, but {}, and both lie in chunk {}, which lives as a whole; put a "
      "rule "
      "before them that covers both, or pack them apart with smaller chunks",
      says(bound), says(now), chunk.value()));
}

}  // namespace

std::string RuleText(const PlacementRule& rule) {
  std::string text = Quoted(rule.glob);
  if (rule.dtype) text += fmt::format(" {}", DTypeName(*rule.dtype));
  if (rule.least > Bytes(0)) {
    text += fmt::format(" of at least {}", FormatBytes(rule.least));
  }
  if (rule.most) text += fmt::format(" of at most {}", FormatBytes(*rule.most));
  return text + fmt::format(": {} {}", rule.state ? *rule.state : kAllStates,
                            rule.decide
                                ? std::string("as a callback says")
                                : fmt::format("on {}", TierName(rule.tier)));
}

Result<std::vector<ChunkBindings>> BindChunks(
    std::span<const PlacementRule> rules, std::span<const ParamSpec> params,
    const ChunkLayout& layout, const StateNames& names) {
  CASTOR_CHECK_EQ(params.size(), layout.places().size());
  std::vector<Matcher> matchers;
  for (size_t r = 0; r < rules.size(); ++r) {
    CASTOR_ASSIGN_OR_RETURN(Matcher matcher, MatcherOf(r, rules[r], names));
    matchers.push_back(std::move(matcher));
  }
  std::vector<bool> matched(rules.size(), false);
  std::vector<ChunkBindings> bindings(layout.chunks().size());
  for (size_t p = 0; p < params.size(); ++p) {
    const ParamId param(static_cast<int32_t>(p));
    const ParamPlace& place = layout.place(param);
    const Bytes size = BytesToHold(place.size, params[p].dtype);
    std::array<bool, kStateKinds> decided = {};
    for (size_t r = 0; r < rules.size(); ++r) {
      if (!matchers[r].Admits(params[p], size)) continue;
      matched[r] = true;
      if (!place.chunk.valid()) continue;
      for (size_t k = 0; k < static_cast<size_t>(names.states()); ++k) {
        if (decided[k]) continue;
        const auto state = static_cast<StateKind>(k);
        const std::optional<Tier> tier = matchers[r].Decide(params[p], state);
        if (!tier) continue;
        decided[k] = true;
        CASTOR_RETURN_IF_ERROR(Bind({static_cast<int32_t>(r), param, *tier},
                                    place.chunk, state, rules, params, names,
                                    bindings[place.chunk.index()][k]));
      }
    }
  }
  for (size_t r = 0; r < rules.size(); ++r) {
    if (!matched[r]) return MatchesNothing(r, rules[r], params);
  }
  return bindings;
}

}  // namespace castor
