// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/families/config_values.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "chunk/layout/tensor_fields.h"
#include "chunk/text/quote.h"

namespace castor {

// Keeps the scalars at the top and inside text_config, and arrays of whole
// numbers; of everything else, that it is there.
class ConfigHandler final : public JsonHandler {
 public:
  Status Open(const JsonPath& path, JsonContainer container) override {
    if (path.empty()) {
      if (container == JsonContainer::kObject) return OkStatus();
      return Malformed("the document is an array where an object belongs");
    }
    if (ConfigValues::Values* values = ValuesAt(path)) {
      ConfigValues::Value value;
      value.container = true;
      value.text =
          container == JsonContainer::kObject ? "an object" : "an array";
      value.list_of_numbers = container == JsonContainer::kArray;
      (*values)[path.back().key] = std::move(value);
    } else if (ConfigValues::Value* list = ListAround(path)) {
      list->list_of_numbers = false;
    }
    if (path.size() == 1 && path[0].key == "text_config" &&
        container == JsonContainer::kObject) {
      has_text_config_ = true;
    }
    return OkStatus();
  }

  Status Close(const JsonPath&) override { return OkStatus(); }

  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override {
    if (path.empty()) {
      return Malformed("the document is no object");
    }
    if (ConfigValues::Values* values = ValuesAt(path)) {
      (*values)[path.back().key] = ValueOf(scalar);
    } else if (ConfigValues::Value* list = ListAround(path)) {
      if (scalar.kind == JsonKind::kUnsigned) {
        list->list.push_back(scalar.number);
      } else {
        list->list_of_numbers = false;
      }
      if (scalar.kind == JsonKind::kString && IsFirstArchitecture(path)) {
        *list = ValueOf(scalar);  // It stands for the list.
      }
    }
    return OkStatus();
  }

  ConfigValues Take() {
    ConfigValues config;
    if (!has_text_config_) {
      config.values_ = std::move(top_);
      return config;
    }
    for (const auto& [key, value] : top_) {
      if (value.container && key.ends_with("_config") && key != "text_config" &&
          key != "quantization_config") {
        config.other_parts_.push_back(key);
      }
    }
    config.values_ = std::move(text_);
    config.outer_ = std::move(top_);
    return config;
  }

 private:
  static ConfigValues::Value ValueOf(const JsonScalar& scalar) {
    ConfigValues::Value value;
    value.kind = scalar.kind;
    value.boolean = scalar.boolean;
    value.number = scalar.number;
    value.text = scalar.kind == JsonKind::kString ? std::string(scalar.text)
                                                  : JsonScalarText(scalar);
    return value;
  }

  static bool IsFirstArchitecture(const JsonPath& path) {
    return path.back().index == 0 &&
           path[path.size() - 2].key == "architectures";
  }

  // The kept array that `path` is an element of, null where there is none.
  ConfigValues::Value* ListAround(const JsonPath& path) {
    if (path.size() < 2 || path.size() > 3 || path.back().in_object ||
        !path[path.size() - 2].in_object) {
      return nullptr;
    }
    if (path.size() == 3 && path[0].key != "text_config") return nullptr;
    ConfigValues::Values& values = path.size() == 2 ? top_ : text_;
    const auto found = values.find(path[path.size() - 2].key);
    return found == values.end() ? nullptr : &found->second;
  }

  // Where the value at `path` is kept, null where it is not.
  ConfigValues::Values* ValuesAt(const JsonPath& path) {
    if (!path.back().in_object) return nullptr;
    if (path.size() == 1) return &top_;
    if (path.size() == 2 && path[0].key == "text_config") return &text_;
    return nullptr;
  }

  ConfigValues::Values top_;
  ConfigValues::Values text_;
  bool has_text_config_ = false;
};

namespace {

constexpr int64_t kMostInt = std::numeric_limits<int32_t>::max();

Status BadValue(std::string_view key, std::string_view is,
                std::string_view belongs) {
  return Malformed(
      fmt::format("{} is {} where {} belongs", Quoted(key), is, belongs));
}

// The text with null for what Python's json writes of infinities. Every byte
// stays where it was, for messages.
std::string WithoutInfinities(std::string_view json) {
  constexpr std::string_view kWords[] = {"-Infinity", "Infinity"};
  std::string text(json);
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') quoted = !quoted;
    if (quoted) {
      at += text[at] == '\\';
      continue;
    }
    for (std::string_view word : kWords) {
      if (text.compare(at, word.size(), word) != 0) continue;
      std::string null = "null";
      null.resize(word.size(), ' ');
      text.replace(at, word.size(), null);
    }
  }
  return text;
}

}  // namespace

Result<ConfigValues> ConfigValues::Parse(std::string_view json) {
  ConfigHandler handler;
  CASTOR_RETURN_IF_ERROR(ReadStrictJson(WithoutInfinities(json), handler));
  return handler.Take();
}

ConfigValues ConfigValues::Whole() const {
  if (outer_.empty()) return *this;
  ConfigValues whole;
  whole.values_ = outer_;
  return whole;
}

const ConfigValues::Value* ConfigValues::Find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool ConfigValues::IsNull(std::string_view key) const {
  const Value* value = Find(key);
  return value != nullptr && value->kind == JsonKind::kNull &&
         !value->container;
}

Result<std::string> ConfigValues::Text(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr || IsNull(key)) return std::string();
  if (value->kind != JsonKind::kString) {
    // An empty list of architectures names none.
    if (value->container && key == "architectures") return std::string();
    return BadValue(key, value->text, "a string");
  }
  return value->text;
}

Result<DType> ConfigValues::dtype() const {
  for (const Values* values : {&values_, &outer_}) {
    for (std::string_view key : {"dtype", "torch_dtype"}) {
      const auto found = values->find(key);
      if (found == values->end()) continue;
      const Value& value = found->second;
      if (value.kind == JsonKind::kString) {
        const Result<DType> dtype =
            ReadDType(value.text, DTypeSpelling::kLenient);
        if (!dtype.ok()) return dtype.status().WithContext(Quoted(key));
        return *dtype;
      }
      if (value.container || value.kind != JsonKind::kNull) {
        return BadValue(key, value.text, "a string");
      }
    }
  }
  return DType::kF32;
}

bool ConfigValues::quantized() const {
  for (const Values* values : {&values_, &outer_}) {
    const auto found = values->find("quantization_config");
    if (found != values->end() && found->second.container) return true;
  }
  return false;
}

bool ConfigValues::IsList(std::string_view key) const {
  const Value* value = Find(key);
  return value != nullptr && value->container && value->text == "an array";
}

Result<int64_t> ConfigValues::Int(const std::string& key, int64_t fallback,
                                  int64_t least) const {
  const Value* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->kind != JsonKind::kUnsigned ||
      value->number < static_cast<uint64_t>(least) ||
      value->number > static_cast<uint64_t>(kMostInt)) {
    const bool text = value->kind == JsonKind::kString;
    return BadValue(
        key, text ? Quoted(value->text) : value->text,
        fmt::format("a whole number from {} to {}", least, kMostInt));
  }
  return static_cast<int64_t>(value->number);
}

Result<int64_t> ConfigValues::IntOrNull(const std::string& key,
                                        int64_t fallback,
                                        int64_t if_null) const {
  return IsNull(key) ? if_null : Int(key, fallback);
}

Result<int64_t> ConfigValues::IntAlias(const std::string& key,
                                       const std::string& alias,
                                       int64_t fallback, int64_t least) const {
  const Value* const named = Find(key);
  const Value* const also = Find(alias);
  if (named != nullptr && also != nullptr && named->number != also->number) {
    return Malformed(
        fmt::format("{} is {} and {} is {}, which are names for one number",
                    Quoted(key), named->text, Quoted(alias), also->text));
  }
  return Int(named == nullptr ? alias : key, fallback, least);
}

Result<bool> ConfigValues::Bool(const std::string& key, bool fallback) const {
  const Value* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->kind != JsonKind::kBool) {
    const bool text = value->kind == JsonKind::kString;
    return BadValue(key, text ? Quoted(value->text) : value->text,
                    "true or false");
  }
  return value->boolean;
}

Result<bool> ConfigValues::BoolOrNull(const std::string& key,
                                      bool fallback) const {
  return IsNull(key) ? false : Bool(key, fallback);
}

Result<std::string> ConfigValues::String(const std::string& key,
                                         const std::string& fallback) const {
  return Find(key) == nullptr ? fallback : Text(key);
}

Result<std::vector<int64_t>> ConfigValues::IntList(
    const std::string& key) const {
  std::vector<int64_t> numbers;
  const Value* value = Find(key);
  if (value == nullptr || IsNull(key)) return numbers;
  constexpr std::string_view kBelongs = "an array of whole numbers";
  if (!value->list_of_numbers) {
    const bool text = value->kind == JsonKind::kString;
    return BadValue(key,
                    IsList(key) ? "an array of other things"
                    : text      ? Quoted(value->text)
                                : value->text,
                    kBelongs);
  }
  for (const uint64_t number : value->list) {
    if (number > static_cast<uint64_t>(kMostInt)) {
      return BadValue(key, fmt::format("an array with {} in it", number),
                      kBelongs);
    }
    numbers.push_back(static_cast<int64_t>(number));
  }
  return numbers;
}

}  // namespace castor
