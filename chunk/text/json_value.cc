// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/json_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/text/printable.h"
#include "chunk/text/strict_json.h"

namespace castor {

JsonValue::JsonValue() = default;
JsonValue::JsonValue(std::nullptr_t) {}
JsonValue::JsonValue(bool value) : kind_(Kind::kBool), boolean_(value) {}
JsonValue::JsonValue(int value) : JsonValue(int64_t{value}) {}
JsonValue::JsonValue(unsigned value) : JsonValue(uint64_t{value}) {}
JsonValue::JsonValue(int64_t value) {
  if (value < 0) {
    kind_ = Kind::kNegative;
    negative_ = value;
  } else {
    kind_ = Kind::kWhole;
    whole_ = static_cast<uint64_t>(value);
  }
}
JsonValue::JsonValue(uint64_t value) : kind_(Kind::kWhole), whole_(value) {}
JsonValue::JsonValue(double value) : kind_(Kind::kReal), real_(value) {}
JsonValue::JsonValue(const char* text) : JsonValue(std::string(text)) {}
JsonValue::JsonValue(std::string_view text) : JsonValue(std::string(text)) {}
JsonValue::JsonValue(std::string text)
    : kind_(Kind::kText), text_(std::move(text)) {}

JsonValue::~JsonValue() = default;
JsonValue::JsonValue(const JsonValue& other) = default;
JsonValue::JsonValue(JsonValue&& other) noexcept = default;
JsonValue& JsonValue::operator=(const JsonValue& other) = default;
JsonValue& JsonValue::operator=(JsonValue&& other) noexcept = default;

JsonValue JsonValue::Array() {
  JsonValue array;
  array.kind_ = Kind::kArray;
  return array;
}

JsonValue JsonValue::Object() {
  JsonValue object;
  object.kind_ = Kind::kObject;
  return object;
}

JsonValue JsonValue::Object(std::initializer_list<JsonMember> members) {
  JsonValue object = Object();
  for (const JsonMember& member : members) object[member.key] = member.value;
  CASTOR_CHECK_EQ(object.size(), members.size());
  return object;
}

size_t JsonValue::Find(std::string_view key) const {
  if (slots_.empty()) {
    const auto at = std::find(keys_.begin(), keys_.end(), key);
    return static_cast<size_t>(at - keys_.begin());
  }
  const size_t mask = slots_.size() - 1;
  for (size_t slot = std::hash<std::string_view>()(key) & mask;
       slots_[slot] != 0; slot = (slot + 1) & mask) {
    if (keys_[slots_[slot] - 1] == key) return slots_[slot] - 1;
  }
  return keys_.size();
}

void JsonValue::Index(size_t first) {
  constexpr size_t kFew = 16;
  if (keys_.size() <= kFew) return slots_.clear();
  // At most half of the slots are taken.
  if (slots_.size() < 2 * keys_.size()) {
    slots_.assign(std::bit_ceil(4 * keys_.size()), 0);
    first = 0;
  }
  const size_t mask = slots_.size() - 1;
  for (size_t at = first; at < keys_.size(); ++at) {
    size_t slot = std::hash<std::string_view>()(keys_[at]) & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<uint32_t>(at + 1);
  }
}

JsonValue& JsonValue::operator[](std::string_view key) {
  if (kind_ == Kind::kNull) kind_ = Kind::kObject;
  CASTOR_CHECK(is_object());
  const size_t at = Find(key);
  if (at == keys_.size()) {
    keys_.emplace_back(key);
    values_.emplace_back();
    Index(at);
  }
  return values_[at];
}

JsonValue& JsonValue::Append(JsonValue value) {
  if (kind_ == Kind::kNull) kind_ = Kind::kArray;
  CASTOR_CHECK(is_array());
  return values_.emplace_back(std::move(value));
}

void JsonValue::Remove(std::string_view key) {
  CASTOR_CHECK(is_object());
  const size_t at = Find(key);
  if (at == keys_.size()) return;
  keys_.erase(keys_.begin() + static_cast<std::ptrdiff_t>(at));
  values_.erase(values_.begin() + static_cast<std::ptrdiff_t>(at));
  slots_.clear();
  Index(0);
}

bool JsonValue::boolean() const {
  CASTOR_CHECK(kind_ == Kind::kBool);
  return boolean_;
}

int64_t JsonValue::integer() const {
  CASTOR_CHECK(is_integer());
  if (kind_ == Kind::kNegative) return negative_;
  CASTOR_CHECK_LE(whole_, uint64_t{std::numeric_limits<int64_t>::max()});
  return static_cast<int64_t>(whole_);
}

double JsonValue::real() const {
  CASTOR_CHECK(is_number());
  if (kind_ == Kind::kReal) return real_;
  return kind_ == Kind::kNegative ? static_cast<double>(negative_)
                                  : static_cast<double>(whole_);
}

const std::string& JsonValue::text() const {
  CASTOR_CHECK(kind_ == Kind::kText);
  return text_;
}

size_t JsonValue::size() const { return values_.size(); }

JsonValue::const_iterator JsonValue::begin() const { return values_.data(); }

JsonValue::const_iterator JsonValue::end() const {
  return values_.data() + values_.size();
}

const JsonValue& JsonValue::operator[](size_t index) const {
  CASTOR_CHECK(is_array());
  CASTOR_CHECK_LT(index, values_.size());
  return values_[index];
}

JsonValue& JsonValue::operator[](size_t index) {
  return const_cast<JsonValue&>(std::as_const(*this)[index]);
}

bool JsonValue::contains(std::string_view key) const {
  return Find(key) < keys_.size();
}

const JsonValue& JsonValue::operator[](std::string_view key) const {
  const size_t at = Find(key);
  if (at == keys_.size()) {
    internal::CheckFailed(__FILE__, __LINE__, "contains(key)", key);
  }
  return values_[at];
}

bool operator==(const JsonValue& a, const JsonValue& b) {
  using Kind = JsonValue::Kind;
  if (a.is_number() && b.is_number()) {
    // Exact while both are integers.
    if (a.kind_ != b.kind_) {
      return !(a.is_integer() && b.is_integer()) && a.real() == b.real();
    }
    if (a.kind_ == Kind::kReal) return a.real_ == b.real_;
    return a.kind_ == Kind::kWhole ? a.whole_ == b.whole_
                                   : a.negative_ == b.negative_;
  }
  if (a.kind_ != b.kind_) return false;
  if (a.kind_ == Kind::kBool) return a.boolean_ == b.boolean_;
  return a.text_ == b.text_ && a.keys_ == b.keys_ && a.values_ == b.values_;
}

namespace {

// `json` with what is not printable as \uXXXX. Beyond ASCII there are only
// characters of strings.
std::string EscapedJson(std::string json) {
  const auto plain = [](char c) {
    return static_cast<unsigned char>(c) < 0x7F;
  };
  if (std::all_of(json.begin(), json.end(), plain)) return json;
  std::string escaped;
  for (std::string_view rest = json; !rest.empty();) {
    const FrontCharacter front = ReadFront(rest);
    const size_t bytes = std::max<size_t>(front.bytes, 1);
    if (plain(rest.front()) || front.printable || front.bytes == 0) {
      escaped += rest.substr(0, bytes);
    } else if (front.point < 0x10000) {
      escaped += fmt::format("\\u{:04x}", front.point);
    } else {
      const uint32_t above = front.point - 0x10000;
      escaped += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10),
                             0xDC00 + (above & 0x3FF));
    }
    rest.remove_prefix(bytes);
  }
  return escaped;
}

}  // namespace

// Numbers and texts are written in the way of nlohmann's library.
struct JsonValue::Writer {
  using Json = nlohmann::ordered_json;

  static Json Of(const JsonValue& value) {
    switch (value.kind_) {
      case Kind::kNull:
        return nullptr;
      case Kind::kBool:
        return value.boolean_;
      case Kind::kWhole:
        return value.whole_;
      case Kind::kNegative:
        return value.negative_;
      case Kind::kReal:
        return value.real_;
      case Kind::kText:
        return value.text_;
      case Kind::kArray: {
        Json array = Json::array();
        for (const JsonValue& one : value.values_) array.push_back(Of(one));
        return array;
      }
      case Kind::kObject: {
        Json object = Json::object();
        auto& members = object.get_ref<Json::object_t&>();
        members.reserve(value.size());
        for (size_t i = 0; i < value.size(); ++i) {
          members.emplace_back(value.keys_[i], Of(value.values_[i]));
        }
        return object;
      }
    }
    return nullptr;
  }
};

std::string JsonValue::Dump(int indent) const {
  return EscapedJson(
      Writer::Of(*this).dump(indent, ' ', /*ensure_ascii=*/false,
                             Writer::Json::error_handler_t::replace));
}

std::ostream& operator<<(std::ostream& out, const JsonValue& value) {
  return out << value.Dump();
}

namespace {

JsonValue ScalarValue(const JsonScalar& scalar) {
  switch (scalar.kind) {
    case JsonKind::kNull:
      return nullptr;
    case JsonKind::kBool:
      return scalar.boolean;
    case JsonKind::kUnsigned:
      return scalar.number;
    case JsonKind::kNegative:
      return scalar.negative;
    case JsonKind::kReal:
      return scalar.real;
    case JsonKind::kString:
      return scalar.text;
  }
  return nullptr;
}

class JsonBuilder final : public JsonHandler {
 public:
  Status Open(const JsonPath& path, JsonContainer container) override {
    open_.push_back(&Put(path, container == JsonContainer::kObject
                                   ? JsonValue::Object()
                                   : JsonValue::Array()));
    return OkStatus();
  }
  Status Close(const JsonPath&) override {
    open_.pop_back();
    return OkStatus();
  }
  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override {
    Put(path, ScalarValue(scalar));
    return OkStatus();
  }

  JsonValue Take() { return std::move(root_); }

 private:
  JsonValue& Put(const JsonPath& path, JsonValue value) {
    if (path.empty()) return root_ = std::move(value);
    if (!path.back().in_object) return open_.back()->Append(std::move(value));
    return (*open_.back())[path.back().key] = std::move(value);
  }

  JsonValue root_;
  // From the root to the innermost; only the last one grows, so all stay where
  // they are.
  std::vector<JsonValue*> open_;
};

}  // namespace

Result<JsonValue> ParseJson(std::string_view text) {
  JsonBuilder builder;
  CASTOR_RETURN_IF_ERROR(ReadStrictJson(text, builder));
  return builder.Take();
}

std::string JsonText(std::string_view text) {
  try {
    return EscapedJson(nlohmann::json(text).dump());
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

std::string JsonAsciiText(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true,
                                   nlohmann::json::error_handler_t::replace);
}

}  // namespace castor
