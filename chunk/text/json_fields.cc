// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/json_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "chunk/text/did_you_mean.h"
#include "chunk/text/quote.h"

namespace castor {

Status CheckKnownKey(const JsonPath& path, std::span<const std::string> known) {
  const std::string& key = path.back().key;
  if (std::find(known.begin(), known.end(), key) != known.end()) {
    return OkStatus();
  }
  const JsonPath parent(path.begin(), path.end() - 1);
  return Malformed(fmt::format("{} holds the unknown key {}{}",
                               JsonPathText(parent), Quoted(key),
                               SuggestName(key, known)));
}

Status WrongJsonType(const JsonPath& path, std::string_view is,
                     std::string_view belongs) {
  return Malformed(fmt::format("{} is {} where {} belongs", JsonPathText(path),
                               is, belongs));
}

Status MissingKey(const JsonPath& path, std::string_view key) {
  return Malformed(
      fmt::format("{} has no {}", JsonPathText(path), Quoted(key)));
}

Result<int64_t> ReadJsonCount(const JsonPath& path, const JsonScalar& scalar,
                              int64_t least, int64_t most) {
  if (scalar.kind != JsonKind::kUnsigned ||
      scalar.number < static_cast<uint64_t>(least) ||
      scalar.number > static_cast<uint64_t>(most)) {
    return WrongJsonType(
        path, JsonScalarText(scalar),
        fmt::format("a whole number from {} to {}", least, most));
  }
  return static_cast<int64_t>(scalar.number);
}

Result<bool> ReadJsonBool(const JsonPath& path, const JsonScalar& scalar) {
  if (scalar.kind != JsonKind::kBool) {
    return WrongJsonType(path, JsonScalarText(scalar), "true or false");
  }
  return scalar.boolean;
}

Status CheckSchema(const JsonScalar& scalar, std::string_view schema) {
  if (scalar.kind == JsonKind::kString && scalar.text == schema) {
    return OkStatus();
  }
  return Malformed(fmt::format("its schema is {}; this version reads {}",
                               JsonScalarText(scalar), Quoted(schema)));
}

}  // namespace castor
