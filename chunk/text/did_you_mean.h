// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_TEXT_DID_YOU_MEAN_H_
#define CASTOR_CHUNK_TEXT_DID_YOU_MEAN_H_

// Beside quote.h, for texts of strangers. The known name that a mistyped one
// was probably meant to be. Pure functions, thread-safe.

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace castor {

// The name of `known` that takes the fewest insertions, deletions, changes and
// swaps of neighbours to become `given`, case aside, where that is at most a
// third of the longer one's length; ties go to the first. Empty where nothing
// is near.
std::optional<std::string> NearestName(std::string_view given,
                                       std::span<const std::string> known);

// "; did you mean X?" for the nearest name, else "; known are A, B, C".
std::string SuggestName(std::string_view given,
                        std::span<const std::string> known);

}  // namespace castor

#endif  // CASTOR_CHUNK_TEXT_DID_YOU_MEAN_H_
