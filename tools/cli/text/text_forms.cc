// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/text/text_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "chunk/base/check.h"
#include "chunk/text/quote.h"

namespace castor {
namespace {

constexpr size_t kLabelColumns = 12;

}  // namespace

std::string Grouped(int64_t number) {
  std::string text = std::to_string(number);
  const size_t sign = number < 0 ? 1 : 0;
  for (size_t at = text.size(); at > 3 + sign;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string Plural(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", Grouped(count), noun, count == 1 ? "" : "s");
}

std::string Percent(double fraction) {
  if (fraction > 0 && fraction < 0.00005) return "< 0.01 %";
  return fmt::format("{:.2f} %", fraction * 100);
}

std::string FormatDuration(int64_t ns) {
  CASTOR_CHECK_GE(ns, int64_t{0});
  struct Unit {
    double ns;
    std::string_view name;
  };
  static constexpr std::array<Unit, 3> kUnits = {
      {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}}};
  for (const Unit& unit : kUnits) {
    const double value = static_cast<double>(ns) / unit.ns;
    // Rounding must not leave 1000 of a unit where the next one begins.
    if (value < 0.9995) continue;
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return fmt::format("{:.{}f} {}", value, digits, unit.name);
  }
  return fmt::format("{} ns", ns);
}

std::string JoinedWithAnd(std::span<const std::string> words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 < words.size() ? ", " : " and ";
    text += words[i];
  }
  return text;
}

std::string Shown(std::string_view text) {
  const std::string quoted = QuotedPath(text);
  return quoted.substr(1, quoted.size() - 2);
}

std::string ShellWord(std::string_view text) {
  if (QuotedPath(text).find("\\x") != std::string::npos) return "MODEL";
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,"
      "@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == text.npos) {
    return std::string(text);
  }
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::string DrawStrip(std::span<const double> shares, StripInk ink) {
  static constexpr std::array<std::string_view, 9> kAscii = {
      " ", ".", ":", "-", "=", "+", "*", "#", "@"};
  static constexpr std::array<std::string_view, 9> kBlocks = {
      " ",      "\u2581", "\u2582", "\u2583", "\u2584",
      "\u2585", "\u2586", "\u2587", "\u2588"};
  const auto& inks = ink == StripInk::kAscii ? kAscii : kBlocks;
  std::string strip;
  for (const double share : shares) {
    const auto level = static_cast<size_t>(
        std::clamp(share, 0.0, 1.0) * static_cast<double>(inks.size() - 1));
    strip += share <= 0 ? inks[0] : inks[std::min(level + 1, inks.size() - 1)];
  }
  return strip;
}

std::string Paragraph(std::string_view label, std::string_view text) {
  std::string page;
  std::string line = fmt::format("{:<{}}", label, kLabelColumns);
  bool empty = true;  // no word on this line yet
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!empty && line.size() + 1 + word.size() > kPageColumns) {
      page += line + "\n";
      line.assign(kLabelColumns, ' ');
      empty = true;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
  }
  return page + line + "\n";
}

}  // namespace castor
