// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/param_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "chunk/text/did_you_mean.h"
#include "chunk/text/glob.h"
#include "chunk/text/quote.h"

namespace castor {
namespace {

bool AnyMatches(const std::vector<Glob>& globs, const std::string& name) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](const Glob& glob) { return glob.Matches(name); });
}

Status MatchesNothing(const std::string& flag, const std::string& pattern,
                      const ModelList& list) {
  const std::string what =
      fmt::format("{} {} matches none of the model's {} parameters", flag,
                  Quoted(pattern), list.params.size());
  const Glob glob(pattern);
  for (const DroppedTensor& tensor : list.dropped) {
    if (!glob.Matches(tensor.name)) continue;
    return InvalidArgument(fmt::format("{}, only {}, which is none ({})", what,
                                       Quoted(tensor.name), tensor.reason));
  }
  std::vector<std::string> names;
  names.reserve(list.params.size());
  for (const ParamSpec& spec : list.params) names.push_back(spec.name);
  const std::optional<std::string> nearest = NearestName(pattern, names);
  if (nearest) {
    return InvalidArgument(
        fmt::format("{}; did you mean {}?", what, Quoted(*nearest)));
  }
  return InvalidArgument(fmt::format(
      "{}{}; a pattern is matched with the whole name, and * stands for any "
      "characters",
      what,
      names.empty() ? "" : ", the first of which is " + Quoted(names.front())));
}

// REQUIRES: every glob is of the pattern with the same index.
Status CheckUsed(const std::string& flag,
                 const std::vector<std::string>& patterns,
                 const std::vector<Glob>& globs, const ModelList& list) {
  for (size_t i = 0; i < globs.size(); ++i) {
    const bool used = std::any_of(
        list.params.begin(), list.params.end(),
        [&](const ParamSpec& spec) { return globs[i].Matches(spec.name); });
    if (!used) return MatchesNothing(flag, patterns[i], list);
  }
  return OkStatus();
}

}  // namespace

Status FilterTrainable(const std::vector<std::string>& freeze,
                       const std::vector<std::string>& only, ModelList& list) {
  const std::vector<Glob> frozen(freeze.begin(), freeze.end());
  const std::vector<Glob> trained(only.begin(), only.end());
  CASTOR_RETURN_IF_ERROR(CheckUsed("--freeze", freeze, frozen, list));
  CASTOR_RETURN_IF_ERROR(CheckUsed("--only", only, trained, list));
  for (ParamSpec& spec : list.params) {
    spec.trainable = (only.empty() || AnyMatches(trained, spec.name)) &&
                     !AnyMatches(frozen, spec.name);
    if (spec.trainable) continue;
    spec.whole = false;  // no optimizer has it
    spec.states = -1;
  }
  return OkStatus();
}

}  // namespace castor
