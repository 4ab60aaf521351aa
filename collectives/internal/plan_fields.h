// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_INTERNAL_PLAN_FIELDS_H_
#define CASTOR_COLLECTIVES_INTERNAL_PLAN_FIELDS_H_

// Scalars of a plan's file (collectives/plan_file.h), each Malformed with its
// place where it is none of its kind. Pure functions, thread-safe.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "chunk/base/json_fields.h"
#include "chunk/base/status.h"
#include "chunk/base/strict_json.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "placement/run_event.h"

namespace castor::internal {

// Sums of a few do not overflow.
inline constexpr int64_t kMaxPlanCount =
    std::numeric_limits<int64_t>::max() / 4;

Status ReadText(const JsonPath& path, const JsonScalar& scalar,
                std::string* text);

// A whole number from `least` to `most`, as an integer or a quantity.
template <typename Number>
Status ReadCount(const JsonPath& path, const JsonScalar& scalar, int64_t least,
                 int64_t most, Number* number) {
  CASTOR_ASSIGN_OR_RETURN(const int64_t count,
                          ReadJsonCount(path, scalar, least, most));
  *number = Number(count);
  return OkStatus();
}
Status ReadBytes(const JsonPath& path, const JsonScalar& scalar, Bytes* bytes);

// One of `known`, by its place there.
Result<size_t> ReadName(const JsonPath& path, const JsonScalar& scalar,
                        const std::vector<std::string>& known);
Result<Tier> ReadTier(const JsonPath& path, const JsonScalar& scalar);
Result<StateKind> ReadState(const JsonPath& path, const JsonScalar& scalar);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_INTERNAL_PLAN_FIELDS_H_
