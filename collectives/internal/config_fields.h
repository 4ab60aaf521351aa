// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_INTERNAL_CONFIG_FIELDS_H_
#define CASTOR_COLLECTIVES_INTERNAL_CONFIG_FIELDS_H_

// A JSON document as a table of what may stand in it, by name: "stage",
// "optimizer.lr", "nvme[].directory", where an index is none. What has no place
// in the table is an error with the nearest name that has. Each part of a
// config (zero_config.h) adds its own. Thread-compatible.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/json_fields.h"
#include "chunk/base/status.h"
#include "chunk/base/strict_json.h"
#include "chunk/base/units.h"

namespace castor::internal {

// Of a choice: what is written, and what that means.
template <typename T>
using ConfigNames = std::vector<std::pair<std::string_view, T>>;

class ConfigFields final : public JsonHandler {
 public:
  static constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

  using Field = std::function<Status(const JsonPath&, const JsonScalar&)>;
  using Edge = std::function<Status(const JsonPath&)>;

  ConfigFields();

  void Add(const std::string& name, Field field) {
    fields_[name] = std::move(field);
  }
  // What an earlier version had: an error that says what to do instead.
  void Refuse(const std::string& name, const std::string& instead) {
    refused_[name] = instead;
  }
  // An object of the fields below it.
  void Object(const std::string& name);
  // A list of objects, of the fields below "name[]"; each begins with `open`
  // and ends with `close`.
  void List(const std::string& name, Edge open, Edge close);

  // Each calls `set` with what is there, once it is known to be of the kind.

  template <typename Set>
  void Whole(const std::string& name, int64_t least, int64_t most, Set set) {
    fields_[name] = [=](const JsonPath& path,
                        const JsonScalar& scalar) -> Status {
      CASTOR_ASSIGN_OR_RETURN(const int64_t value,
                              ReadJsonCount(path, scalar, least, most));
      set(value);
      return OkStatus();
    };
  }

  template <typename Set>
  void Size(const std::string& name, Set set) {
    Whole(name, 0, kMost, [set](int64_t bytes) { set(Bytes(bytes)); });
  }

  template <typename Set>
  void Number(const std::string& name, Set set) {
    fields_[name] = [set](const JsonPath& path,
                          const JsonScalar& scalar) -> Status {
      CASTOR_ASSIGN_OR_RETURN(const double value, ReadNumber(path, scalar));
      set(value);
      return OkStatus();
    };
  }

  template <typename Set>
  void Flag(const std::string& name, Set set) {
    fields_[name] = [set](const JsonPath& path,
                          const JsonScalar& scalar) -> Status {
      CASTOR_ASSIGN_OR_RETURN(const bool value, ReadJsonBool(path, scalar));
      set(value);
      return OkStatus();
    };
  }

  template <typename Set>
  void Text(const std::string& name, Set set) {
    fields_[name] = [set](const JsonPath& path, const JsonScalar& scalar) {
      if (scalar.kind != JsonKind::kString) {
        return WrongJsonType(path, JsonScalarText(scalar), "a text");
      }
      set(scalar.text);
      return OkStatus();
    };
  }

  template <typename T, typename Set>
  void OneOf(const std::string& name, ConfigNames<T> names, Set set) {
    fields_[name] = [=](const JsonPath& path, const JsonScalar& scalar) {
      std::string belongs;
      for (const auto& [text, value] : names) {
        if (scalar.kind == JsonKind::kString && scalar.text == text) {
          set(value);
          return OkStatus();
        }
        if (!belongs.empty()) belongs += " or ";
        belongs.append("\"").append(text).append("\"");
      }
      return WrongJsonType(path, JsonScalarText(scalar), belongs);
    };
  }

  Status Open(const JsonPath& path, JsonContainer container) override;
  Status Close(const JsonPath& path) override;
  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override;

  // The names of what was read, in order.
  const std::vector<std::string>& said() const { return said_; }
  // Of all that may be.
  std::vector<std::string> names() const;

 private:
  static Result<double> ReadNumber(const JsonPath& path,
                                   const JsonScalar& scalar);
  // What is at `path` belongs nowhere, or is a container where a value belongs.
  Status Unknown(const JsonPath& path, bool object) const;

  std::vector<std::string> said_;
  std::map<std::string, Field> fields_;
  std::map<std::string, std::string> refused_;
  // By the name of what opens.
  std::map<std::string, JsonContainer> containers_;
  std::map<std::string, Edge> opens_;
  std::map<std::string, Edge> closes_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_INTERNAL_CONFIG_FIELDS_H_
