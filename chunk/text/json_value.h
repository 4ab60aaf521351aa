// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_TEXT_JSON_VALUE_H_
#define CASTOR_CHUNK_TEXT_JSON_VALUE_H_

// A JSON document as a value: made to be written, or read whole. Members of an
// object keep the order in which they were set, so the same steps give the same
// bytes. Large files of strangers are read event by event instead
// (chunk/text/strict_json.h). Thread-compatible.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"

namespace castor {

struct JsonMember;

class JsonValue {
 public:
  // Of the values of an array or of an object's members, so that a range-for
  // and matchers of containers work.
  using value_type = JsonValue;
  using const_iterator = const JsonValue*;

  JsonValue();  // null
  // Implicit, so that what has a meaning in JSON is written as it is.
  JsonValue(std::nullptr_t);                // NOLINT
  JsonValue(bool value);                    // NOLINT
  JsonValue(int value);                     // NOLINT
  JsonValue(unsigned value);                // NOLINT
  JsonValue(int64_t value);                 // NOLINT
  JsonValue(uint64_t value);                // NOLINT
  JsonValue(double value);                  // NOLINT
  JsonValue(const char* text);              // NOLINT
  JsonValue(std::string_view text);         // NOLINT
  JsonValue(std::string text);              // NOLINT
  JsonValue(const void* pointer) = delete;  // it would be a bool

  static JsonValue Array();
  static JsonValue Object();
  // Each key once.
  static JsonValue Object(std::initializer_list<JsonMember> members);

  ~JsonValue();
  JsonValue(const JsonValue& other);
  JsonValue(JsonValue&& other) noexcept;
  JsonValue& operator=(const JsonValue& other);
  JsonValue& operator=(JsonValue&& other) noexcept;

  // The member of that name, null where it is new. Makes an object of null.
  // REQUIRES: null or an object.
  JsonValue& operator[](std::string_view key);
  // At the end of an array. Makes an array of null. REQUIRES: null or an array.
  // The reference is good until the next call.
  JsonValue& Append(JsonValue value);
  // Does nothing where there is no such member. REQUIRES: an object.
  void Remove(std::string_view key);

  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_integer() const {
    return kind_ == Kind::kWhole || kind_ == Kind::kNegative;
  }
  // An integer that `integer` gives.
  bool is_int64() const {
    return kind_ == Kind::kNegative ||
           (kind_ == Kind::kWhole && whole_ >> 63 == 0);
  }
  bool is_number() const { return is_integer() || kind_ == Kind::kReal; }
  bool is_text() const { return kind_ == Kind::kText; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }

  // REQUIRES: of that kind; an integer within the type's limits.
  bool boolean() const;
  int64_t integer() const;
  double real() const;  // of any number
  const std::string& text() const;

  // How many values an array or object holds; 0 for anything else.
  size_t size() const;
  bool empty() const { return size() == 0; }
  const_iterator begin() const;
  const_iterator end() const;
  // REQUIRES: an array with more than `index` values.
  const JsonValue& operator[](size_t index) const;
  JsonValue& operator[](size_t index);
  // Of an object, in order.
  const std::vector<std::string>& keys() const { return keys_; }
  bool contains(std::string_view key) const;
  // REQUIRES: contains(key).
  const JsonValue& operator[](std::string_view key) const;

  // In one line where `indent` is negative; else a line for each value, and
  // that many spaces a level. Characters beyond ASCII as they are, U+FFFD for
  // bytes that are not UTF-8, null for what is no finite number.
  std::string Dump(int indent = -1) const;

  // Numbers by what they are worth, objects with the order of their members.
  friend bool operator==(const JsonValue& a, const JsonValue& b);

 private:
  enum class Kind : uint8_t {
    kNull,
    kBool,
    kWhole,     // integers from 0 on
    kNegative,  // integers below
    kReal,
    kText,
    kArray,
    kObject,
  };
  struct Writer;

  // The place of `key`, or how many members there are.
  size_t Find(std::string_view key) const;
  // Puts the members from `first` on into slots_.
  void Index(size_t first);

  Kind kind_ = Kind::kNull;
  union {
    bool boolean_;
    uint64_t whole_ = 0;
    int64_t negative_;
    double real_;
  };
  std::string text_;
  std::vector<std::string> keys_;  // of an object
  std::vector<JsonValue> values_;  // of an array or an object
  // Of an object with many members: a hash table with open addressing, of
  // places counted from 1; 0 is free. Empty where there are few.
  std::vector<uint32_t> slots_;
};

struct JsonMember {
  std::string_view key;
  JsonValue value;
};

// As Dump() has it; what GoogleTest prints.
std::ostream& operator<<(std::ostream& out, const JsonValue& value);

// Malformed, with the byte offset, as ReadStrictJson.
Result<JsonValue> ParseJson(std::string_view text);

// `text` as a JSON string, with its quotes; empty where it is not UTF-8.
std::string JsonText(std::string_view text);

// The same in ASCII: characters beyond it are escaped, U+FFFD for bytes that
// are not UTF-8.
std::string JsonAsciiText(std::string_view text);

}  // namespace castor

#endif  // CASTOR_CHUNK_TEXT_JSON_VALUE_H_
