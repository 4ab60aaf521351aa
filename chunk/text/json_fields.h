// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_TEXT_JSON_FIELDS_H_
#define CASTOR_CHUNK_TEXT_JSON_FIELDS_H_

// Beside strict_json.h. What the handlers of Castor's own JSON files ask of
// every field: a known key, the right type, a number within its limits. Pure
// functions, thread-safe.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "chunk/base/status.h"
#include "chunk/text/strict_json.h"

namespace castor {

// Malformed, with the nearest known key, where the key at the end of `path` is
// none of `known`. REQUIRES: `path` ends in an object.
Status CheckKnownKey(const JsonPath& path, std::span<const std::string> known);

// Malformed: `path` is `is` where `belongs` belongs, both as a sentence has
// them: "an object", "true".
Status WrongJsonType(const JsonPath& path, std::string_view is,
                     std::string_view belongs);

// Malformed: the object at `path` lacks `key`.
Status MissingKey(const JsonPath& path, std::string_view key);

// A whole number from `least` to `most`. REQUIRES: 0 <= least <= most.
Result<int64_t> ReadJsonCount(const JsonPath& path, const JsonScalar& scalar,
                              int64_t least, int64_t most);

Result<bool> ReadJsonBool(const JsonPath& path, const JsonScalar& scalar);

// Malformed where `scalar` is not the text `schema`; the message says which
// schema this version reads.
Status CheckSchema(const JsonScalar& scalar, std::string_view schema);

}  // namespace castor

#endif  // CASTOR_CHUNK_TEXT_JSON_FIELDS_H_
