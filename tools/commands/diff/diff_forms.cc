// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/diff/diff_forms.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "chunk/base/units.h"
#include "tools/cli/duration_text.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_forms.h"

namespace castor {
namespace {

// More rows of a section are for --plain and --json.
constexpr size_t kMostRows = 24;

std::optional<double> Number(const DiffValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    return static_cast<double>(*whole);
  }
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return std::nullopt;
}

std::string WholeText(int64_t value, DiffUnit unit) {
  switch (unit) {
    case DiffUnit::kBytes:
      return value < 0 ? fmt::format("{} B", value) : FormatSize(Bytes(value));
    case DiffUnit::kNs:
      return value < 0 ? fmt::format("{} ns", value) : FormatDuration(value);
    case DiffUnit::kSeconds:
      return fmt::format("{} s", value);
    case DiffUnit::kNone:
      break;
  }
  return Grouped(value);
}

std::string RealText(double value, DiffUnit unit) {
  constexpr double kMostSeconds = 1e9;
  if (unit == DiffUnit::kSeconds && value >= 0 && value < kMostSeconds) {
    return FormatDuration(std::llround(value * 1e9));
  }
  return fmt::format("{:.6g}", value);
}

std::string ValueText(const DiffValue& value, DiffUnit unit) {
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    return WholeText(*whole, unit);
  }
  if (const auto* real = std::get_if<double>(&value)) {
    return RealText(*real, unit);
  }
  if (const auto* text = std::get_if<std::string>(&value)) return Shown(*text);
  return "-";
}

std::string ChangeText(const DiffRow& row) {
  if (row.equal()) return "equal";
  const std::optional<double> a = Number(row.a);
  const std::optional<double> b = Number(row.b);
  if (!a || !b || *a == 0) return "differs";
  return fmt::format("{:+.2f} %", (*b / *a - 1) * 100);
}

JsonValue ValueJson(const DiffValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return *whole;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return JsonValue();
}

std::string_view KeyEnd(DiffUnit unit) {
  switch (unit) {
    case DiffUnit::kBytes:
      return "_bytes";
    case DiffUnit::kNs:
      return "_ns";
    case DiffUnit::kSeconds:
      return "_seconds";
    case DiffUnit::kNone:
      break;
  }
  return "";
}

}  // namespace

std::string DiffText(const DiffReport& report, Emphasis emphasis) {
  std::string text = Paragraph("A", Shown(report.a));
  text += Paragraph("B", Shown(report.b));
  if (report.equal()) text += Paragraph("Equal", "in everything below");
  for (const DiffSection& section : report.sections) {
    TextTable table(
        {{section.name, TextTable::Align::kLeft}, {"A"}, {"B"}, {"change"}});
    for (size_t i = 0; i < section.rows.size() && i < kMostRows; ++i) {
      const DiffRow& row = section.rows[i];
      table.AddRow({Shown(row.what), ValueText(row.a, row.unit),
                    ValueText(row.b, row.unit), ChangeText(row)});
    }
    text += "\n" + table.Render(emphasis);
    if (section.rows.size() > kMostRows) {
      text += fmt::format("  and {} more: --plain or --json\n",
                          section.rows.size() - kMostRows);
    }
  }
  return text;
}

JsonValue DiffJson(const DiffReport& report) {
  JsonValue json;
  json["schema"] = "castor.diff/1";
  json["kind"] = report.kind;
  json["a"] = report.a;
  json["b"] = report.b;
  json["equal"] = report.equal();
  json["sections"] = JsonValue::Array();
  for (const DiffSection& section : report.sections) {
    JsonValue rows = JsonValue::Array();
    for (const DiffRow& row : section.rows) {
      JsonValue one;
      one["what"] = row.what;
      one[fmt::format("a{}", KeyEnd(row.unit))] = ValueJson(row.a);
      one[fmt::format("b{}", KeyEnd(row.unit))] = ValueJson(row.b);
      one["equal"] = row.equal();
      rows.Append(std::move(one));
    }
    json["sections"].Append(
        JsonValue::Object({{"name", section.name}, {"rows", std::move(rows)}}));
  }
  return json;
}

std::string DiffPlain(const DiffReport& report) {
  std::string text;
  for (const DiffSection& section : report.sections) {
    for (const DiffRow& row : section.rows) {
      text += fmt::format("{}\t{}\t{}\t{}\n", section.name, Shown(row.what),
                          ValueJson(row.a).Dump(), ValueJson(row.b).Dump());
    }
  }
  return text;
}

}  // namespace castor
