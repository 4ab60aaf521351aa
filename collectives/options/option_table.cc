// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/options/option_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <system_error>

#include "chunk/base/check.h"
#include "chunk/base/units.h"
#include "chunk/text/did_you_mean.h"
#include "chunk/text/json_fields.h"
#include "chunk/text/quantity_text.h"
#include "chunk/text/quote.h"
#include "chunk/text/strict_json.h"
#include "chunk/text/units_text.h"

namespace castor {
namespace {

constexpr size_t kMostListed = 4096;

// Choices are in lower case on command lines: bf16 of BF16.
std::string Lower(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

// A name of documents, where an index is none: "nvme[].directory".
std::string NameOf(JsonPath::const_iterator from, JsonPath::const_iterator to) {
  std::string name;
  for (; from != to; ++from) {
    if (!from->in_object) {
      name += "[]";
    } else {
      if (!name.empty()) name += '.';
      name += from->key;
    }
  }
  return name;
}

// Whether `key` is `name`, or below it.
bool IsIn(std::string_view key, std::string_view name) {
  return !name.empty() && key.starts_with(name) &&
         (key.size() == name.size() || key[name.size()] == '.' ||
          key[name.size()] == '[');
}

template <typename Number>
std::optional<Number> NumberIn(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

bool IsName(const Option& option, std::string_view text) {
  return std::count(option.names.begin(), option.names.end(), text) > 0;
}

// Sets what `text` says. Fails with words that go behind the value.
Status Take(const Option& option, OptionType type, std::string_view text) {
  switch (type) {
    case OptionType::kSwitch:
      return option.set(text != "false");
    case OptionType::kWhole: {
      const std::optional<int64_t> number = NumberIn<int64_t>(text);
      if (number && *number >= option.least && *number <= option.most) {
        return option.set(*number);
      }
      if (IsName(option, text)) return option.set(std::string(text));
      if (!option.names.empty()) {
        return InvalidArgument(fmt::format(
            "is neither a whole number from {} to {} nor {}", option.least,
            option.most, fmt::join(option.names, ", ")));
      }
      if (option.type == OptionType::kSize) {
        return InvalidArgument(fmt::format(
            "is not a whole number from {} to 2 EiB", option.least));
      }
      return InvalidArgument(fmt::format("is not a whole number from {} to {}",
                                         option.least, option.most));
    }
    case OptionType::kReal: {
      const std::optional<double> number = NumberIn<double>(text);
      if (number && std::isfinite(*number) && *number >= option.lowest &&
          *number <= option.highest) {
        return option.set(*number);
      }
      return InvalidArgument(fmt::format("is not a number from {} to {}",
                                         option.lowest, option.highest));
    }
    case OptionType::kChoice: {
      std::vector<std::string> shown;
      for (const std::string& name : option.names) {
        shown.push_back(Lower(name));
        if (text == name || text == shown.back()) return option.set(name);
      }
      return InvalidArgument("is not a known value" + SuggestName(text, shown));
    }
    default:
      return option.set(std::string(text));
  }
}

// A size or a time with a unit: what it is as a number.
Result<std::string> InUnits(const Option& option, std::string_view text) {
  if (option.type == OptionType::kTime) {
    CASTOR_ASSIGN_OR_RETURN(const int64_t ns, ParseTime(text, option.most));
    return std::to_string(ns);
  }
  CASTOR_ASSIGN_OR_RETURN(const Bytes size, ParseSize(text));
  return std::to_string(size.count());
}

// Takes `text`, which stands for the document's scalar.
Status TakeText(const Option& option, OptionType type, const JsonPath& path,
                const JsonScalar& scalar, std::string_view text) {
  const Status taken = Take(option, type, text);
  if (taken.ok()) return taken;
  return Malformed(fmt::format("{} is {}, which {}", JsonPathText(path),
                               JsonScalarText(scalar), taken.message()));
}

// The same of a document, where sizes and times may also be numbers.
Status Take(const Option& option, const JsonPath& path,
            const JsonScalar& scalar) {
  const bool whole =
      scalar.kind == JsonKind::kUnsigned || scalar.kind == JsonKind::kNegative;
  OptionType type = option.type;
  std::string belongs = "a text";
  bool fits = scalar.kind == JsonKind::kString;
  if (type == OptionType::kSwitch) {
    belongs = "true or false";
    fits = scalar.kind == JsonKind::kBool;
  } else if (type == OptionType::kReal) {
    belongs = "a number";
    fits = whole || scalar.kind == JsonKind::kReal;
  } else if (type != OptionType::kText && type != OptionType::kChoice) {
    const bool units = type == OptionType::kSize || type == OptionType::kTime;
    belongs = type == OptionType::kSize   ? "a number of bytes, or \"4GiB\""
              : type == OptionType::kTime ? "a number of ns, or \"850ms\""
                                          : "a whole number";
    for (const std::string& name : option.names) {
      belongs += fmt::format(" or {}", Quoted(name));
    }
    if (fits && IsName(option, scalar.text)) {
      return option.set(std::string(scalar.text));
    }
    fits = whole || (units && fits);
    type = OptionType::kWhole;
  }
  const std::string shown = JsonScalarText(scalar);
  if (!fits) return WrongJsonType(path, shown, belongs);
  const bool text = scalar.kind == JsonKind::kString;
  if (text && type == OptionType::kWhole) {
    const Result<std::string> number = InUnits(option, scalar.text);
    if (!number.ok()) {
      return Malformed(
          fmt::format("{}: {}", JsonPathText(path), number.status().message()));
    }
    return TakeText(option, type, path, scalar, *number);
  }
  return TakeText(option, type, path, scalar, text ? scalar.text : shown);
}

// What there is to say of a scalar. An empty text is none, unless it must be.
std::optional<OptionScalar> Said(const Option& option) {
  if (!option.get) return std::nullopt;
  std::optional<OptionScalar> scalar = option.get();
  if (scalar == OptionScalar(std::string()) && !option.required) return {};
  return scalar;
}

class Reader final : public JsonHandler {
 public:
  explicit Reader(const OptionTable& table) : table_(table) {}

  std::vector<std::string> TakeSaid() { return std::move(said_); }

  Status Open(const JsonPath& path, JsonContainer container) override {
    const bool object = container == JsonContainer::kObject;
    const auto is_where = [&](std::string_view belongs) {
      return WrongJsonType(path, object ? "an object" : "an array", belongs);
    };
    if (path.empty()) return object ? OkStatus() : is_where("an object");
    const Place place = PlaceOf(path);
    if (!path.back().in_object) {  // what opened before is a list
      if (!object) return is_where("an object");
      if (path.back().index >= kMostListed) {
        return Malformed(fmt::format("{} holds more than {} entries",
                                     path.front().key, kMostListed));
      }
      element_ = place.list->open();
      first_of_element_ = said_.size();
      return OkStatus();
    }
    if (const Option* const row = place.table->Find(place.name)) {
      const bool list = row->type == OptionType::kList;
      if (list && !object) return OkStatus();
      return is_where(list ? "an array" : "a value");
    }
    if (!IsObject(place)) return Unknown(path, place);
    return object ? OkStatus() : is_where("an object");
  }

  Status Close(const JsonPath& path) override {
    if (path.empty()) return CheckRequired(path, table_, "", 0);
    if (path.back().in_object) return OkStatus();
    CASTOR_RETURN_IF_ERROR(CheckRequired(path, element_,
                                         NameOf(path.begin(), path.end()) + '.',
                                         first_of_element_));
    const Status closed = PlaceOf(path).list->close();
    if (closed.ok()) return closed;
    return Malformed(
        fmt::format("{} {}", JsonPathText(path), closed.message()));
  }

  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override {
    const auto is_where = [&](std::string_view belongs) {
      return WrongJsonType(path, JsonScalarText(scalar), belongs);
    };
    if (path.empty() || !path.back().in_object) return is_where("an object");
    const Place place = PlaceOf(path);
    const Option* const row = place.table->Find(place.name);
    if (row == nullptr) {
      return IsObject(place) ? is_where("an object") : Unknown(path, place);
    }
    if (row->type == OptionType::kList) return is_where("an array");
    CASTOR_RETURN_IF_ERROR(Take(*row, path, scalar));
    said_.push_back(NameOf(path.begin(), path.end()));
    return OkStatus();
  }

 private:
  // Where a path leads: into the table, or into the object of a list that is
  // being read.
  struct Place {
    const OptionTable* table = nullptr;
    std::string name;              // in that table
    const Option* list = nullptr;  // that has the object
  };

  Place PlaceOf(const JsonPath& path) const {
    const auto index =
        std::find_if(path.begin(), path.end(),
                     [](const JsonStep& step) { return !step.in_object; });
    if (index == path.end()) {
      return {&table_, NameOf(path.begin(), path.end()), nullptr};
    }
    return {&element_, NameOf(std::next(index), path.end()),
            table_.Find(NameOf(path.begin(), index))};
  }

  static bool IsObject(const Place& place) {
    const std::vector<Option>& rows = place.table->rows();
    return std::any_of(rows.begin(), rows.end(), [&](const Option& row) {
      return row.key.starts_with(place.name + '.');
    });
  }

  static Status Unknown(const JsonPath& path, const Place& place) {
    const size_t dot = place.name.rfind('.');
    const std::string parent =
        dot == place.name.npos ? "" : place.name.substr(0, dot + 1);
    std::vector<std::string> keys;
    for (const Option& row : place.table->rows()) {
      if (!row.key.starts_with(parent)) continue;
      const std::string rest = row.key.substr(parent.size());
      std::string key = rest.substr(0, rest.find('.'));
      if (key.empty() || std::count(keys.begin(), keys.end(), key) > 0) {
        continue;
      }
      keys.push_back(std::move(key));
    }
    return CheckKnownKey(path, keys);
  }

  Status CheckRequired(const JsonPath& path, const OptionTable& table,
                       const std::string& prefix, size_t first) const {
    for (const Option& row : table.rows()) {
      if (row.required &&
          std::count(said_.begin() + static_cast<std::ptrdiff_t>(first),
                     said_.end(), prefix + row.key) == 0) {
        return MissingKey(path, row.key);
      }
    }
    return OkStatus();
  }

  const OptionTable& table_;
  OptionTable element_;  // of the list that is being read
  size_t first_of_element_ = 0;
  std::vector<std::string> said_;
};

}  // namespace

Option& Option::MultipleOf(int64_t unit) {
  set = [set = std::move(set), unit](const OptionScalar& scalar) -> Status {
    if (std::get<int64_t>(scalar) % unit == 0) return set(scalar);
    return InvalidArgument(fmt::format("is no multiple of {}", unit));
  };
  return *this;
}

Option& Option::Then(std::function<void()> more) {
  set = [set = std::move(set),
         more = std::move(more)](const OptionScalar& scalar) -> Status {
    CASTOR_RETURN_IF_ERROR(set(scalar));
    more();
    return OkStatus();
  };
  return *this;
}

const Option* OptionTable::Find(std::string_view key) const {
  for (const Option& row : rows_) {
    if (!key.empty() && row.key == key) return &row;
  }
  return nullptr;
}

Option& OptionTable::OfFlag(std::string_view flag) {
  const auto found =
      std::find_if(rows_.begin(), rows_.end(),
                   [&](const Option& row) { return row.flag == flag; });
  CASTOR_CHECK(found != rows_.end());
  return *found;
}

OptionTable OptionTable::For(uint32_t uses) const {
  OptionTable table;
  for (const Option& row : rows_) {
    if ((row.uses & uses) != 0) table.rows_.push_back(row);
  }
  return table;
}

void OptionTable::Add(const OptionTable& other) {
  rows_.insert(rows_.end(), other.rows_.begin(), other.rows_.end());
}

Option& OptionTable::Add(OptionType type, std::string key, std::string form) {
  return rows_.emplace_back(Option{type, std::move(key), std::move(form)});
}

Option& OptionTable::Texts(std::vector<std::string>* to) {
  Option& row = Add(OptionType::kList, "", "TEXT");
  row.parse = [to](std::string_view value) {
    to->emplace_back(value);
    return OkStatus();
  };
  row.print = [to] { return *to; };
  return row;
}

Option& OptionTable::Choice(std::string key, std::string* to,
                            std::vector<std::string> names) {
  Option& row = Bound(OptionType::kChoice, std::move(key), "", to);
  row.names = std::move(names);
  return row;
}

Option& OptionTable::Words(std::string form) {
  return Add(OptionType::kWords, "", std::move(form));
}

Option& OptionTable::Schema(const std::string& schema) {
  Option& row = Add(OptionType::kText, "schema");
  row.set = [schema](const OptionScalar& scalar) -> Status {
    if (scalar == OptionScalar(schema)) return OkStatus();
    return InvalidArgument(
        fmt::format("is not what this version reads, {}", Quoted(schema)));
  };
  row.get = [schema] { return OptionScalar(schema); };
  return row;
}

std::string OptionForm(const Option& option) {
  if (option.type != OptionType::kChoice) return option.form;
  return Lower(fmt::format("{}", fmt::join(option.names, "|")));
}

std::string OptionHelp(const Option& option) {
  const std::string usual = option.fallback.value_or(
      fmt::format("{}", fmt::join(OptionWords(option), " ")));
  return usual.empty() ? option.text
                       : fmt::format("{} (default: {})", option.text, usual);
}

Status ParseOption(const Option& option, std::string_view text) {
  if (option.parse) return option.parse(text);
  if (option.type == OptionType::kTime) {
    CASTOR_ASSIGN_OR_RETURN(const int64_t ns, ParseTime(text, option.most));
    return option.set(ns);
  }
  Status taken;
  if (option.type == OptionType::kSize) {
    CASTOR_ASSIGN_OR_RETURN(const Bytes size, ParseSize(text));
    taken = option.set(size.count());
  } else {
    taken = Take(option, option.type, text);
  }
  if (taken.ok()) return taken;
  return InvalidArgument(fmt::format("{} {}", Quoted(text), taken.message()));
}

std::vector<std::string> OptionWords(const Option& option) {
  if (option.print) return option.print();
  const std::optional<OptionScalar> scalar = Said(option);
  if (!scalar || scalar == OptionScalar(false)) return {};
  switch (option.type) {
    case OptionType::kSwitch:
      return {""};
    case OptionType::kWhole:
      if (const std::string* const word = std::get_if<std::string>(&*scalar)) {
        return {*word};
      }
      return {fmt::format("{}", std::get<int64_t>(*scalar))};
    case OptionType::kReal:
      return {fmt::format("{}", std::get<double>(*scalar))};
    case OptionType::kSize:
      return {FormatSizeExact(Bytes(std::get<int64_t>(*scalar)))};
    case OptionType::kTime:
      return {FormatTimeExact(std::get<int64_t>(*scalar))};
    case OptionType::kChoice:
      return {Lower(std::get<std::string>(*scalar))};
    default:
      return {std::get<std::string>(*scalar)};
  }
}

Result<std::vector<std::string>> ReadOptions(std::string_view text,
                                             const OptionTable& table) {
  Reader reader(table);
  CASTOR_RETURN_IF_ERROR(ReadStrictJsonByLine(text, reader));
  return reader.TakeSaid();
}

JsonValue WriteOptions(const OptionTable& table) {
  JsonValue document = JsonValue::Object();
  for (const Option& row : table.rows()) {
    if (row.key.empty()) continue;
    JsonValue value;
    if (row.json) {
      value = row.json();
      if (value.empty()) continue;
    } else if (const std::optional<OptionScalar> scalar = Said(row)) {
      value = std::visit([](const auto& of) { return JsonValue(of); }, *scalar);
    } else {
      continue;
    }
    const size_t dot = row.key.find('.');
    JsonValue& object =
        dot == row.key.npos ? document : document[row.key.substr(0, dot)];
    object[row.key.substr(dot + 1)] = std::move(value);
  }
  return document;
}

Status CheckSaidOnce(const OptionTable& table,
                     const std::vector<std::string>& given,
                     const std::vector<std::string>& said,
                     std::string_view document) {
  for (const Option& row : table.rows()) {
    if (std::count(given.begin(), given.end(), row.flag) == 0) continue;
    for (const std::string& other : given) {
      if (std::count(row.same.begin(), row.same.end(), other) == 0) continue;
      return InvalidArgument(fmt::format(
          "{} and {} each say the same: leave one away", row.flag, other));
    }
    for (const std::string& key : said) {
      const bool both =
          IsIn(key, row.key) ||
          std::any_of(row.same.begin(), row.same.end(),
                      [&](const std::string& name) { return IsIn(key, name); });
      if (!both) continue;
      return InvalidArgument(
          fmt::format("{} and {} in {} each say the same: leave one away",
                      row.flag, Quoted(key), document));
    }
  }
  return OkStatus();
}

}  // namespace castor
