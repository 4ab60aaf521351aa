// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/internal/config_fields.h"

namespace castor::internal {
namespace {

std::string NameOf(const JsonPath& path) {
  std::string name;
  for (const JsonStep& step : path) {
    if (!step.in_object) {
      name += "[]";
    } else {
      if (!name.empty()) name += '.';
      name += step.key;
    }
  }
  return name;
}

}  // namespace

ConfigFields::ConfigFields() { Object(""); }

void ConfigFields::Object(const std::string& name) {
  containers_[name] = JsonContainer::kObject;
}

void ConfigFields::List(const std::string& name, Edge open, Edge close) {
  containers_[name] = JsonContainer::kArray;
  containers_[name + "[]"] = JsonContainer::kObject;
  opens_[name + "[]"] = std::move(open);
  closes_[name + "[]"] = std::move(close);
}

Status ConfigFields::Open(const JsonPath& path, JsonContainer container) {
  const bool object = container == JsonContainer::kObject;
  const std::string name = NameOf(path);
  const auto known = containers_.find(name);
  if (known == containers_.end()) return Unknown(path, object);
  if ((known->second == JsonContainer::kObject) != object) {
    return WrongJsonType(path, object ? "an object" : "an array",
                         object ? "an array" : "an object");
  }
  const auto edge = opens_.find(name);
  return edge == opens_.end() ? OkStatus() : edge->second(path);
}

Status ConfigFields::Close(const JsonPath& path) {
  const auto edge = closes_.find(NameOf(path));
  return edge == closes_.end() ? OkStatus() : edge->second(path);
}

Status ConfigFields::Scalar(const JsonPath& path, const JsonScalar& scalar) {
  const auto field = fields_.find(NameOf(path));
  if (field != fields_.end()) {
    said_.push_back(field->first);
    return field->second(path, scalar);
  }
  if (const auto gone = refused_.find(NameOf(path)); gone != refused_.end()) {
    return Malformed(JsonPathText(path) + " is gone: " + gone->second);
  }
  const auto container = containers_.find(NameOf(path));
  if (container == containers_.end()) return Unknown(path, false);
  return WrongJsonType(
      path, JsonScalarText(scalar),
      container->second == JsonContainer::kObject ? "an object" : "an array");
}

std::vector<std::string> ConfigFields::names() const {
  std::vector<std::string> names;
  for (const auto& [name, field] : fields_) names.push_back(name);
  return names;
}

Result<double> ConfigFields::ReadNumber(const JsonPath& path,
                                        const JsonScalar& scalar) {
  switch (scalar.kind) {
    case JsonKind::kUnsigned:
      return static_cast<double>(scalar.number);
    case JsonKind::kNegative:
    case JsonKind::kReal:
      return scalar.real;
    default:
      return WrongJsonType(path, JsonScalarText(scalar), "a number");
  }
}

Status ConfigFields::Unknown(const JsonPath& path, bool object) const {
  if (fields_.contains(NameOf(path))) {
    return WrongJsonType(path, object ? "an object" : "an array", "a value");
  }
  if (path.empty() || !path.back().in_object) {
    return WrongJsonType(path, "an array or a value", "an object");
  }
  std::string parent = NameOf({path.begin(), path.end() - 1});
  if (!parent.empty()) parent += '.';
  std::vector<std::string> keys;
  const auto add = [&](const std::string& name) {
    if (!name.starts_with(parent) || name == parent) return;
    const std::string key = name.substr(parent.size());
    if (key.find_first_of(".[") == key.npos) keys.push_back(key);
  };
  for (const auto& [name, field] : fields_) add(name);
  for (const auto& [name, container] : containers_) add(name);
  return CheckKnownKey(path, keys);
}

}  // namespace castor::internal
