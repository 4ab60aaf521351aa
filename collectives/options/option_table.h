// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_OPTIONS_OPTION_TABLE_H_
#define CASTOR_COLLECTIVES_OPTIONS_OPTION_TABLE_H_

// Options as rows of a table. A row has the option's names in documents and on
// command lines, the type, limits, a text for the help, and the member that the
// option sets. Command lines with their help (tools/cli/flags.h), configs
// (zero_config.h) and plan files (plan_file.h) are made from such tables, so a
// new option is one row. A table refers to members of structures, which outlive
// the table and stay where they are. Thread-compatible.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/text/json_value.h"

namespace castor {

class OptionTable;

enum class OptionType : uint8_t {
  kSwitch,
  kWhole,
  kReal,
  kSize,    // bytes; a flag's with a unit
  kTime,    // nanoseconds; a flag's with a unit
  kChoice,  // one of `names`
  kText,
  kWords,  // of a flag alone, which has a form of its own
  kList,   // objects of a document; a flag that may be repeated
};

// A value on its way between a text and a member.
using OptionScalar = std::variant<bool, int64_t, double, std::string>;

// A row. Members that are not of its type are empty.
struct Option {
  using Parse = std::function<Status(std::string_view)>;
  using Print = std::function<std::vector<std::string>()>;

  OptionType type = OptionType::kText;
  std::string key = {};   // "optimizer.beta1"; empty: not in documents
  std::string form = {};  // stands for a flag's value: "N", "SIZE", "FILE"
  std::string flag = {};  // "--beta1"; empty: not on command lines
  std::string text = {};  // for the help, without limits and default
  // What the help says of the default; without it, what the member has.
  std::optional<std::string> fallback = {};
  // Keys and flags besides `key` that say the same; a key with all below it.
  std::vector<std::string> same = {};
  uint32_t uses = 0;      // bits of whoever selects rows: OptionTable::For
  bool required = false;  // a document has to say it

  int64_t least = 0;  // of kWhole and kTime; of kSize in documents
  int64_t most = std::numeric_limits<int64_t>::max();
  double lowest = 0;  // of kReal
  double highest = 0;
  // Of kChoice, as documents have them; of kWhole, words in place of a number.
  std::vector<std::string> names = {};

  // Of scalars. `set` fails with what is wrong with a value, in words that go
  // behind it: "is no multiple of 64". No value: the member is not set.
  std::function<Status(const OptionScalar&)> set = {};
  std::function<std::optional<OptionScalar>()> get = {};
  // Of kWords and kList: takes one value of the flag; the values of as many
  // flags as it takes to say what the members have.
  Parse parse = {};
  Print print = {};
  // Of kList: begins an object, which has the rows returned; ends it; all of
  // them.
  std::function<OptionTable()> open = {};
  std::function<Status()> close = {};
  std::function<JsonValue()> json = {};

  // For rows that are being made.
  Option& Flag(std::string name, std::string help) {
    flag = std::move(name);
    text = std::move(help);
    return *this;
  }
  Option& Flag(std::string name, std::string help, Parse parser,
               Print printer = {}) {
    parse = std::move(parser);
    print = std::move(printer);
    return Flag(std::move(name), std::move(help));
  }
  Option& For(uint32_t bits) { return uses = bits, *this; }
  Option& Must() { return required = true, *this; }
  Option& Form(std::string name) { return form = std::move(name), *this; }
  Option& Default(std::string words) { return fallback = words, *this; }
  Option& Same(std::vector<std::string> keys) { return same = keys, *this; }
  // Of a kWhole.
  Option& MultipleOf(int64_t unit);
  // Also calls `more` where it is set.
  Option& Then(std::function<void()> more);
};

namespace internal {

// What a member holds, which may be one that is not set.
template <typename To>
struct OptionMember {
  using Value = To;
};
template <typename V>
struct OptionMember<std::optional<V>> {
  using Value = V;
};

template <typename V>
OptionScalar ToScalar(const V& value) {
  if constexpr (std::is_same_v<V, bool>) {
    return value;
  } else if constexpr (std::is_floating_point_v<V>) {
    return double{value};
  } else if constexpr (std::is_arithmetic_v<V>) {
    return static_cast<int64_t>(value);
  } else if constexpr (requires { value.count(); }) {
    return value.count();  // Bytes, Elements
  } else {
    return std::string(value);
  }
}

template <typename V>
V FromScalar(const OptionScalar& scalar) {
  if constexpr (std::is_same_v<V, bool>) {
    return std::get<bool>(scalar);
  } else if constexpr (std::is_floating_point_v<V>) {
    return std::get<double>(scalar);
  } else if constexpr (std::is_constructible_v<V, std::string>) {
    return V(std::get<std::string>(scalar));
  } else {
    return V(std::get<int64_t>(scalar));
  }
}

}  // namespace internal

class OptionTable {
 public:
  static constexpr double kAnyReal = std::numeric_limits<double>::infinity();

  template <typename To>
  using Value = typename internal::OptionMember<To>::Value;

  const std::vector<Option>& rows() const { return rows_; }
  // Null where there is none.
  const Option* Find(std::string_view key) const;
  // REQUIRES: there is one.
  Option& OfFlag(std::string_view flag);
  // The row of `flag`, which sets another member from now on. REQUIRES: there
  // is one, of a number or a text.
  template <typename To>
  Option& Bind(std::string_view flag, To* to) {
    return Bind(OfFlag(flag), to);
  }
  // The rows that have one of the bits `uses`.
  OptionTable For(uint32_t uses) const;

  void Add(const OptionTable& other);
  Option& Add(Option row) { return rows_.emplace_back(std::move(row)); }
  Option& Add(OptionType type, std::string key, std::string form = "");

  // Rows of members: a number, Bytes, Elements, a text, or a std::optional of
  // one. `key` is empty where documents do not have it. The reference is good
  // until the next row is added.

  template <typename To>
  Option& Whole(std::string key, To* to, int64_t least, int64_t most) {
    Option& row = Bound(OptionType::kWhole, std::move(key), "N", to);
    row.least = least;
    row.most = most;
    return row;
  }
  template <typename To>
  Option& Real(std::string key, To* to, double lowest = -kAnyReal,
               double highest = kAnyReal) {
    Option& row = Bound(OptionType::kReal, std::move(key), "X", to);
    row.lowest = lowest;
    row.highest = highest;
    return row;
  }
  template <typename To>
  Option& Size(std::string key, To* to) {
    Option& row = Bound(OptionType::kSize, std::move(key), "SIZE", to);
    row.most /= 4;  // sums of a few do not overflow
    return row;
  }
  template <typename To>
  Option& Time(std::string key, To* to, int64_t most) {
    Option& row = Bound(OptionType::kTime, std::move(key), "TIME", to);
    row.most = most;
    return row;
  }
  Option& Switch(std::string key, bool* to) {
    return Bound(OptionType::kSwitch, std::move(key), "", to);
  }
  // An empty text is as if it were not set.
  template <typename To>
  Option& Text(std::string key, To* to) {
    return Bound(OptionType::kText, std::move(key), "TEXT", to);
  }
  // Texts of a flag that may be repeated.
  Option& Texts(std::vector<std::string>* to);
  // One of `all`, by its name.
  template <typename To>
  Option& Choice(std::string key, To* to, std::string_view (*name)(Value<To>),
                 std::vector<Value<To>> all);
  Option& Choice(std::string key, std::string* to,
                 std::vector<std::string> names);
  Option& Words(std::string form);
  // Objects with the rows that `fill` makes of one. `add` takes one that was
  // read, `all` gives those there are.
  template <typename T>
  Option& List(std::string key, void (*fill)(OptionTable&, T*),
               std::function<Status(const T&)> add,
               std::function<std::vector<T>()> all);
  template <typename T>
  Option& List(std::string key, void (*fill)(OptionTable&, T*),
               std::vector<T>* to) {
    return List<T>(
        std::move(key), fill,
        [to](const T& one) { return to->push_back(one), OkStatus(); },
        [to] { return *to; });
  }
  // The key "schema", which has this one value.
  Option& Schema(const std::string& schema);

 private:
  template <typename To>
  Option& Bound(OptionType type, std::string key, std::string form, To* to) {
    return Bind(Add(type, std::move(key), std::move(form)), to);
  }
  template <typename To>
  static Option& Bind(Option& row, To* to);

  std::vector<Option> rows_;
};

// Of a flag, for the help: what stands for its value, "auto|planned"; and its
// text with the default.
std::string OptionForm(const Option& option);
std::string OptionHelp(const Option& option);

// Takes a flag's value. InvalidArgument with what is wrong with it, without the
// flag's name.
Status ParseOption(const Option& option, std::string_view text);

// The values of as many flags as it takes to give the option what it has, an
// empty one for a switch; none: it is as if no flag were given.
std::vector<std::string> OptionWords(const Option& option);

// Sets what the document `text` says. Returns the keys of that: "stage",
// "optimizer.beta1", "nvme[].directory". Malformed, with line and column, where
// it is no document of these rows; for a key that there is not, with the
// nearest that there is.
Result<std::vector<std::string>> ReadOptions(std::string_view text,
                                             const OptionTable& table);

// A document of all that the table's members have.
JsonValue WriteOptions(const OptionTable& table);

// InvalidArgument, naming both, where one of the flags `given` says what
// another of them says, or what one of the keys `said` in `document` does.
Status CheckSaidOnce(const OptionTable& table,
                     const std::vector<std::string>& given,
                     const std::vector<std::string>& said,
                     std::string_view document);

template <typename To>
Option& OptionTable::Bind(Option& row, To* to) {
  row.set = [to](const OptionScalar& scalar) {
    *to = internal::FromScalar<Value<To>>(scalar);
    return OkStatus();
  };
  row.get = [to]() -> std::optional<OptionScalar> {
    if constexpr (std::is_same_v<To, Value<To>>) {
      return internal::ToScalar(*to);
    } else {
      if (!to->has_value()) return std::nullopt;
      return internal::ToScalar(**to);
    }
  };
  return row;
}

template <typename To>
Option& OptionTable::Choice(std::string key, To* to,
                            std::string_view (*name)(Value<To>),
                            std::vector<Value<To>> all) {
  Option& row = Add(OptionType::kChoice, std::move(key));
  for (const Value<To> each : all) row.names.emplace_back(name(each));
  row.set = [to, name, all = std::move(all)](const OptionScalar& scalar) {
    for (const Value<To> each : all) {
      if (name(each) == std::get<std::string>(scalar)) *to = each;
    }
    return OkStatus();
  };
  row.get = [to, name]() -> std::optional<OptionScalar> {
    const std::optional<Value<To>> value = *to;
    if (!value) return std::nullopt;
    return std::string(name(*value));
  };
  return row;
}

template <typename T>
Option& OptionTable::List(std::string key, void (*fill)(OptionTable&, T*),
                          std::function<Status(const T&)> add,
                          std::function<std::vector<T>()> all) {
  Option& row = Add(OptionType::kList, std::move(key), "TEXT");
  const auto one = std::make_shared<T>();
  row.open = [fill, one] {
    *one = T();
    OptionTable rows;
    fill(rows, one.get());
    return rows;
  };
  row.close = [add = std::move(add), one] { return add(*one); };
  row.json = [fill, all = std::move(all)] {
    JsonValue list = JsonValue::Array();
    for (T& each : all()) {
      OptionTable rows;
      fill(rows, &each);
      list.Append(WriteOptions(rows));
    }
    return list;
  };
  return row;
}

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_OPTIONS_OPTION_TABLE_H_
