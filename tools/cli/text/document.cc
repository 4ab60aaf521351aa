// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/text/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <ostream>

#include "chunk/base/check.h"
#include "chunk/text/printable.h"
#include "chunk/text/units_text.h"
#include "tools/cli/text/text_forms.h"

namespace castor {
namespace {

bool Has(Form forms, Form one) {
  return (static_cast<int>(forms) & static_cast<int>(one)) != 0;
}

std::string SecondsText(double seconds) {
  constexpr double kMostSeconds = 1e9;
  if (seconds < 0 || !(seconds < kMostSeconds)) {
    return fmt::format("{:.6g} s", seconds);
  }
  return FormatDuration(static_cast<int64_t>(std::llround(seconds * 1e9)));
}

// Columns of a terminal: characters of UTF-8, not bytes.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

using Cells = std::vector<std::string>;

// Lines of as many cells each, in columns as wide as their widest one.
std::string Aligned(const std::vector<Cells>& lines,
                    const std::vector<bool>& left,
                    const std::vector<bool>& chosen, Emphasis emphasis) {
  std::vector<size_t> widths(left.size(), 0);
  for (const Cells& cells : lines) {
    for (size_t i = 0; i < cells.size(); ++i) {
      widths[i] = std::max(widths[i], Width(cells[i]));
    }
  }
  std::string page;
  for (size_t l = 0; l < lines.size(); ++l) {
    std::string line(1, chosen[l] ? '>' : ' ');
    for (size_t i = 0; i < widths.size(); ++i) {
      const std::string& cell = lines[l][i];
      const std::string padding(widths[i] - Width(cell), ' ');
      line += i == 0 ? " " : "  ";
      line += left[i] ? cell + padding : padding + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    const bool bold = chosen[l] && emphasis == Emphasis::kTerminal;
    page += bold ? "\x1b[1m" + line + "\x1b[0m\n" : line + "\n";
  }
  return page;
}

std::string PlainLine(const Cells& fields) {
  std::string line;
  for (const std::string& field : fields) {
    if (&field != &fields.front()) line += '\t';
    line += Printable(field);
  }
  return line + '\n';
}

}  // namespace

Result<Form> FormOf(bool json, bool plain) {
  if (json && plain) {
    return InvalidArgument("--json and --plain exclude each other");
  }
  return json ? Form::kJson : plain ? Form::kPlain : Form::kPage;
}

Value::Value(std::string text) : kind_(Kind::kText), data_(std::move(text)) {}

Value Value::Name(std::string_view foreign) { return {Kind::kName, foreign}; }

Value Value::Seconds(std::optional<double> seconds) {
  return seconds ? Value(Kind::kSeconds, *seconds) : Value();
}

Value Value::Share(std::optional<double> share) {
  return share ? Value(Kind::kShare, *share) : Value();
}

Value Value::Share(int64_t part, int64_t whole) {
  if (whole == 0) return {};
  return Share(static_cast<double>(part) / static_cast<double>(whole));
}

Value Value::Change(std::optional<double> change) {
  return change ? Value(Kind::kChange, *change) : Value();
}

Value Value::BytesOrDash(Bytes bytes) {
  return bytes == Bytes(0) ? Value(bytes).As("-") : Value(bytes);
}

Value Value::As(std::string page) && {
  page_ = std::move(page);
  return std::move(*this);
}

Value Value::Or(std::string page) && {
  if (kind_ == Kind::kNothing) page_ = std::move(page);
  return std::move(*this);
}

std::string Value::Page() const {
  if (page_) return *page_;
  switch (kind_) {
    case Kind::kNothing:
      return "-";
    case Kind::kText:
      return data_.text();
    case Kind::kName:
      return Shown(data_.text());
    case Kind::kYesNo:
      return data_.boolean() ? "yes" : "no";
    case Kind::kCount:
      return Grouped(data_.integer());
    case Kind::kReal:
      return fmt::format("{:.6g}", data_.real());
    case Kind::kBytes:
      return data_.integer() < 0 ? fmt::format("{} B", data_.integer())
                                 : FormatSize(Bytes(data_.integer()));
    case Kind::kNs:
      return data_.integer() < 0 ? fmt::format("{} ns", data_.integer())
                                 : FormatDuration(data_.integer());
    case Kind::kSeconds:
      return SecondsText(data_.real());
    case Kind::kShare:
      return Percent(data_.real());
    case Kind::kChange:
      return data_.real() == 0 ? "equal"
                               : fmt::format("{:+.2f} %", data_.real() * 100);
    case Kind::kData:
      break;
  }
  return "";
}

std::string_view Value::unit() const {
  return kind_ == Kind::kBytes     ? "_bytes"
         : kind_ == Kind::kNs      ? "_ns"
         : kind_ == Kind::kSeconds ? "_seconds"
                                   : "";
}

std::string Value::Plain() const {
  switch (kind_) {
    case Kind::kNothing:
    case Kind::kName:
    case Kind::kYesNo:
      return Value(kind_, data_).Page();
    case Kind::kText:
      return data_.text();
    case Kind::kSeconds:
      return fmt::format("{:.9f}", data_.real());
    case Kind::kReal:
    case Kind::kShare:
    case Kind::kChange:
      return fmt::format("{}", data_.real());
    default:
      return data_.Dump();
  }
}

JsonValue Fields(
    std::initializer_list<std::pair<std::string_view, Value>> fields) {
  JsonValue json = JsonValue::Object();
  for (const auto& [key, value] : fields) json[key] = value.Json();
  return json;
}

void Table::Add(std::vector<Value> cells, Mark mark, Form forms) {
  CASTOR_CHECK_EQ(cells.size(), columns_.size());
  rows_.push_back({std::move(cells), mark, forms});
}

JsonValue Table::Json() const {
  JsonValue array = JsonValue::Array();
  for (const Row& row : rows_) {
    if (!Has(row.forms, Form::kJson)) continue;
    JsonValue& object = array.Append(JsonValue::Object());
    for (size_t i = 0; i < columns_.size(); ++i) {
      const Column& column = columns_[i];
      if (column.key.empty() || !Has(column.forms, Form::kJson)) continue;
      object[column.key] = row.cells[i].Json();
    }
  }
  return array;
}

std::string Table::Plain() const {
  const auto line = [&](const auto& field_of) {
    std::vector<std::string> fields;
    if (!options_.word.empty()) fields.push_back(options_.word);
    for (size_t i = 0; i < columns_.size(); ++i) {
      const Column& column = columns_[i];
      if (column.key.empty() || !Has(column.forms, Form::kPlain)) continue;
      fields.push_back(field_of(i));
    }
    return PlainLine(fields);
  };
  std::string text;
  if (options_.word.empty() && !options_.header) return text;
  if (options_.header) {
    text = "#" + line([&](size_t i) { return columns_[i].key; });
  }
  for (const Row& row : rows_) {
    if (!Has(row.forms, Form::kPlain)) continue;
    text += line([&](size_t i) { return row.cells[i].Plain(); });
  }
  return text;
}

bool Table::IsLeft(size_t column) const {
  if (columns_[column].align != Align::kAuto) {
    return columns_[column].align == Align::kLeft;
  }
  return std::all_of(rows_.begin(), rows_.end(), [&](const Row& row) {
    return row.cells[column].is_text();
  });
}

std::string Table::Page(Emphasis emphasis) const {
  std::vector<Cells> lines(1);  // the titles first
  std::vector<bool> chosen = {false};
  std::vector<size_t> shown;
  std::vector<bool> left;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].title.empty() || !Has(columns_[i].forms, Form::kPage)) {
      continue;
    }
    shown.push_back(i);
    left.push_back(IsLeft(i));
    lines[0].push_back(columns_[i].title);
  }
  size_t more = 0;
  for (const Row& row : rows_) {
    if (!Has(row.forms, Form::kPage)) continue;
    if (lines.size() > options_.most_rows) {
      ++more;
      continue;
    }
    chosen.push_back(row.mark == Mark::kChosen);
    Cells& cells = lines.emplace_back();
    for (const size_t i : shown) cells.push_back(row.cells[i].Page());
  }
  if (shown.empty() || lines.size() == 1) return "";
  const std::string page = Aligned(lines, left, chosen, emphasis);
  if (more == 0) return page;
  return page + fmt::format("  ... and {} more: --plain or --json\n", more);
}

void Document::Set(std::string_view key, const Value& value) {
  json_[key] = value.Json();
}

void Document::Line(std::initializer_list<Value> fields) {
  std::vector<std::string> texts;
  for (const Value& field : fields) texts.push_back(field.Plain());
  plain_ += PlainLine(texts);
}

void Document::Say(std::string_view label, std::string_view text) {
  if (!text.empty()) Text(Paragraph(label, text));
}

void Document::SayUnbroken(std::string_view label, std::string_view text) {
  Text(fmt::format("{:<12}{}\n", label, text));
}

void Document::Text(std::string lines) {
  if (!lines.empty()) page_.emplace_back(Printable(lines));
}

void Document::Add(Table table, Form forms) {
  if (Has(forms, Form::kJson) && !table.key().empty()) {
    json_[table.key()] = table.Json();
  }
  if (Has(forms, Form::kPlain)) plain_ += table.Plain();
  if (Has(forms, Form::kPage)) page_.emplace_back(std::move(table));
}

void Document::Add(std::string_view key, Document part) {
  if (!key.empty()) {
    json_[key] = std::move(part.json_);
  } else {
    for (const std::string& each : part.json_.keys()) {
      json_[each] = part.json_[each];
    }
  }
  plain_ += part.plain_;
  std::move(part.page_.begin(), part.page_.end(), std::back_inserter(page_));
}

std::string Document::Page(Emphasis emphasis) const {
  std::string page;
  bool gap = false;
  for (const auto& block : page_) {
    const Table* const table = std::get_if<Table>(&block);
    const std::string text =
        table != nullptr ? table->Page(emphasis) : std::get<std::string>(block);
    if (text.empty()) {
      gap |= table == nullptr;
      continue;
    }
    if (!page.empty() && (gap || table != nullptr)) page += '\n';
    page += text;
    gap = table != nullptr;
  }
  return page;
}

void Print(const Document& document, Form form, const Console& console) {
  if (form == Form::kJson) {
    console.out << document.Json().Dump(2) << '\n';
  } else if (form == Form::kPlain) {
    console.out << document.Plain();
  } else {
    console.out << document.Page(console.colour ? Emphasis::kTerminal
                                                : Emphasis::kNone);
  }
}

}  // namespace castor
