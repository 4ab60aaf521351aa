// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/internal/plan_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "chunk/base/did_you_mean.h"
#include "chunk/base/quote.h"

namespace castor::internal {

Status ReadText(const JsonPath& path, const JsonScalar& scalar,
                std::string* text) {
  if (scalar.kind != JsonKind::kString) {
    return WrongJsonType(path, JsonScalarText(scalar), "a string");
  }
  *text = scalar.text;
  return OkStatus();
}

Status ReadBytes(const JsonPath& path, const JsonScalar& scalar, Bytes* bytes) {
  return ReadCount(path, scalar, 0, kMaxPlanCount, bytes);
}

Result<size_t> ReadName(const JsonPath& path, const JsonScalar& scalar,
                        const std::vector<std::string>& known) {
  std::string text;
  CASTOR_RETURN_IF_ERROR(ReadText(path, scalar, &text));
  const auto found = std::find(known.begin(), known.end(), text);
  if (found == known.end()) {
    return Malformed(fmt::format("{} is {}, which is none{}",
                                 JsonPathText(path), Quoted(text),
                                 SuggestName(text, known)));
  }
  return static_cast<size_t>(found - known.begin());
}

Result<Tier> ReadTier(const JsonPath& path, const JsonScalar& scalar) {
  std::vector<std::string> names;
  for (const Tier tier : kAllTiers) names.emplace_back(TierName(tier));
  CASTOR_ASSIGN_OR_RETURN(const size_t at, ReadName(path, scalar, names));
  return kAllTiers[at];
}

Result<StateKind> ReadState(const JsonPath& path, const JsonScalar& scalar) {
  std::vector<std::string> names;
  for (int k = 0; k < kStateKinds; ++k) {
    names.emplace_back(StateKindName(static_cast<StateKind>(k)));
  }
  CASTOR_ASSIGN_OR_RETURN(const size_t at, ReadName(path, scalar, names));
  return static_cast<StateKind>(at);
}

}  // namespace castor::internal
