// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_TEXT_STRICT_JSON_H_
#define CASTOR_CHUNK_TEXT_STRICT_JSON_H_

// JSON from strangers, read event by event without building a document: memory
// grows with what the handler keeps, not with what the file holds. A key given
// twice in one object is an error, as are text after the document, bytes that
// are not UTF-8 and deep nesting. Pure function, thread-safe.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"

namespace castor {

// One step from the root: a key of an object, or an index of an array.
struct JsonStep {
  bool in_object = false;
  std::string key;   // of an object
  size_t index = 0;  // of an array
};
using JsonPath = std::vector<JsonStep>;

// `weight_map."a.b"[3]`, for messages; "the document" for the root.
std::string JsonPathText(const JsonPath& path);

enum class JsonKind { kNull, kBool, kUnsigned, kNegative, kReal, kString };

struct JsonScalar {
  JsonKind kind = JsonKind::kNull;
  bool boolean = false;
  uint64_t number = 0;   // of kUnsigned
  int64_t negative = 0;  // of kNegative
  double real = 0;       // of kNegative and kReal, for messages
  // Of kString; of kReal as it is written. Valid during the call only.
  std::string_view text = {};
};

// "null", "true", "3", "3.0", "\"text\"": for messages.
std::string JsonScalarText(const JsonScalar& scalar);

enum class JsonContainer { kObject, kArray };

// Receives the events of one document in order. A failure ends the reading.
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;
  // `path` leads to the container that opens or closes.
  virtual Status Open(const JsonPath& path, JsonContainer container) = 0;
  virtual Status Close(const JsonPath& path) = 0;
  virtual Status Scalar(const JsonPath& path, const JsonScalar& scalar) = 0;
};

// Malformed where `text` is not one JSON document; a failure of the handler
// otherwise. Messages end with the byte offset, counted from `first_offset` for
// the first byte of `text`.
Status ReadStrictJson(std::string_view text, JsonHandler& handler,
                      uint64_t first_offset = 0);

// The same for text that people write: messages end with line and column,
// counted from 1 and in bytes, of the last key that was read where the handler
// fails, else of where reading stopped.
Status ReadStrictJsonByLine(std::string_view text, JsonHandler& handler);

}  // namespace castor

#endif  // CASTOR_CHUNK_TEXT_STRICT_JSON_H_
