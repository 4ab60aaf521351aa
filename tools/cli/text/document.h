// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_TEXT_DOCUMENT_H_
#define CASTOR_TOOLS_CLI_TEXT_DOCUMENT_H_

// What a command has to say, filled once and printed in one of three forms: a
// page for people, tab-separated lines (--plain), or one JSON document (--json,
// chunk/text/json_value.h). What a page and programs share is said once, as a
// table or a part. Values; thread-compatible.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/text/json_value.h"
#include "tools/cli/console.h"

namespace castor {

// Whether a page may be bold where a terminal shows it.
enum class Emphasis : uint8_t { kNone, kTerminal };

// A set of forms, as bits.
enum class Form : uint8_t {
  kPage = 1,
  kPlain = 2,
  kJson = 4,
  kPageAndPlain = 3,
  kPageAndJson = 5,
  kData = 6,  // for programs
  kAll = 7,
};

// The one that the flags --json and --plain ask for. InvalidArgument for both.
Result<Form> FormOf(bool json, bool plain);

// A number, a text or nothing, with its unit: each has one look on a page and
// one as data.
class Value {
 public:
  Value() = default;        // nothing: "-", null
  Value(std::string text);  // NOLINT
  Value(std::string_view text) : Value(std::string(text)) {}  // NOLINT
  Value(const char* text) : Value(std::string(text)) {}       // NOLINT
  // A count, or yes or no.
  template <std::integral T>
  Value(T whole)  // NOLINT
      : kind_(std::same_as<T, bool> ? Kind::kYesNo : Kind::kCount),
        data_(whole) {}
  Value(Elements elements) : Value(elements.count()) {}              // NOLINT
  Value(double real) : kind_(Kind::kReal), data_(real) {}            // NOLINT
  Value(Bytes bytes) : kind_(Kind::kBytes), data_(bytes.count()) {}  // NOLINT
  Value(JsonValue data)                                              // NOLINT
      : kind_(Kind::kData), data_(std::move(data)) {}
  template <typename T>
  Value(const std::optional<T>& value) {  // NOLINT
    if (value) *this = Value(*value);
  }

  // From a file: what a terminal would obey is escaped on pages and lines.
  static Value Name(std::string_view foreign);
  static Value Ns(int64_t ns) { return {Kind::kNs, ns}; }
  static Value Seconds(std::optional<double> seconds);
  // Of one: "5.13 %".
  static Value Share(std::optional<double> share);
  static Value Share(int64_t part, int64_t whole);
  // By which share of itself something grew: "+5.13 %".
  static Value Change(std::optional<double> change);

  // No bytes are "-" on a page.
  static Value BytesOrDash(Bytes bytes);

  // The same with another look on a page: always, or where there is nothing.
  Value As(std::string page) &&;
  Value Or(std::string page) &&;

  const JsonValue& Json() const { return data_; }
  std::string Page() const;
  std::string Plain() const;  // numbers as JSON has them, yes or no
  // What a JSON key says of it at its end: "_bytes", "_ns", "_seconds".
  std::string_view unit() const;
  // Nothing counts as text, too.
  bool is_text() const { return kind_ <= Kind::kName; }

 private:
  enum class Kind : uint8_t {
    kNothing,
    kText,
    kName,
    kYesNo,
    kCount,
    kReal,
    kBytes,
    kNs,
    kSeconds,
    kShare,
    kChange,
    kData,  // not for pages
  };
  Value(Kind kind, JsonValue data) : kind_(kind), data_(std::move(data)) {}

  Kind kind_ = Kind::kNothing;
  JsonValue data_;
  std::optional<std::string> page_;
};

// A JSON object. Each key once.
JsonValue Fields(
    std::initializer_list<std::pair<std::string_view, Value>> fields);

// A JSON array of what `value_of` makes of each.
template <typename Range, typename Function>
JsonValue ListOf(const Range& range, const Function& value_of) {
  JsonValue list = JsonValue::Array();
  for (const auto& each : range) list.Append(Value(value_of(each)).Json());
  return list;
}
template <typename Range>
JsonValue ListOf(const Range& range) {
  return ListOf(range, [](const auto& each) { return Value(each); });
}

// Rows of values in named columns: aligned on a page, an array of objects in
// JSON, and lines of --plain.
class Table {
 public:
  // By itself: text to the left, everything else to the right.
  enum class Align : uint8_t { kAuto, kLeft, kRight };
  enum class Mark : uint8_t { kNone, kChosen };  // the row to look at first
  struct Column {
    std::string key = {};    // empty: not for programs
    std::string title = {};  // empty: not on a page
    Align align = Align::kAuto;
    Form forms = Form::kAll;
  };
  static Column JsonOnly(std::string key) {
    return {std::move(key), "", Align::kAuto, Form::kJson};
  }
  static Column NotPlain(std::string key, std::string title) {
    return {std::move(key), std::move(title), Align::kAuto, Form::kPageAndJson};
  }
  static Column PlainOnly(std::string key) {
    return {std::move(key), "", Align::kAuto, Form::kPlain};
  }
  struct Options {
    std::string key = {};   // of the array in JSON; empty: not there
    std::string word = {};  // before each line of --plain
    bool header = false;    // --plain begins with the keys
    // On a page, which counts the others.
    size_t most_rows = SIZE_MAX;
  };

  Table(Options options, std::vector<Column> columns)
      : options_(std::move(options)), columns_(std::move(columns)) {}

  // REQUIRES: one cell for each column.
  void Add(std::vector<Value> cells, Mark mark = Mark::kNone,
           Form forms = Form::kAll);

  const std::string& key() const { return options_.key; }
  bool empty() const { return rows_.empty(); }

  JsonValue Json() const;
  std::string Plain() const;  // empty without a word and a header
  // Empty without rows or titles. Columns as wide as their widest cell, two
  // spaces between them; a chosen row has a mark and is bold on a terminal.
  std::string Page(Emphasis emphasis) const;

 private:
  struct Row {
    std::vector<Value> cells;
    Mark mark;
    Form forms;
  };

  bool IsLeft(size_t column) const;

  Options options_;
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

class Document {
 public:
  Document() = default;
  explicit Document(std::string_view schema) { Set("schema", schema); }

  // --- For programs ---------------------------------------------------------
  // A member of the JSON document.
  void Set(std::string_view key, const Value& value);
  // A line of --plain, with tabs between the fields.
  void Line(std::initializer_list<Value> fields);

  // --- On the page ----------------------------------------------------------
  // A paragraph with its label; nothing where there is no text.
  void Say(std::string_view label, std::string_view text);
  // A line that is never broken, so that it can be copied.
  void SayUnbroken(std::string_view label, std::string_view text);
  // Whole lines as they are.
  void Text(std::string lines);
  // An empty line; there is one around tables anyway.
  void Gap() { page_.emplace_back(std::string()); }

  // --- For both -------------------------------------------------------------
  void Add(Table table, Form forms = Form::kAll);
  // The part's page and lines behind these, its JSON under `key`; its members
  // behind these where that is empty.
  void Add(std::string_view key, Document part);

  const JsonValue& Json() const { return json_; }
  const std::string& Plain() const { return plain_; }
  std::string Page(Emphasis emphasis = Emphasis::kNone) const;

 private:
  JsonValue json_;
  std::string plain_;
  // Lines, empty for a gap, or a table.
  std::vector<std::variant<std::string, Table>> page_;
};

// Keys in the order in which they were set, two spaces a level, a newline at
// the end, bytes that are not UTF-8 replaced: the same input gives the same
// bytes. REQUIRES: one form.
void Print(const Document& document, Form form, const Console& console);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_TEXT_DOCUMENT_H_
