// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/text_table.h"

#include <algorithm>
#include <cstddef>

#include "chunk/base/check.h"

namespace castor {
namespace {

// Columns of a terminal: characters of UTF-8, not bytes.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

void TextTable::AddRow(std::vector<std::string> cells, Mark mark) {
  CASTOR_CHECK_EQ(cells.size(), columns_.size());
  rows_.push_back({std::move(cells), mark});
}

std::string TextTable::Render(Emphasis emphasis) const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(Width(column.title));
  for (const Row& row : rows_) {
    for (size_t i = 0; i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], Width(row.cells[i]));
    }
  }
  const auto line = [&](char mark, const auto& cell_of) {
    std::string text(1, mark);
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      const std::string padding(widths[i] - Width(cell), ' ');
      text += i == 0 ? " " : "  ";
      text +=
          columns_[i].align == Align::kRight ? padding + cell : cell + padding;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  std::string text =
      line(
          ' ', [&](size_t i) -> auto& { return columns_[i].title; }) +
      "\n";
  for (const Row& row : rows_) {
    const bool chosen = row.mark == Mark::kChosen;
    const std::string shown = line(
        chosen ? '>' : ' ', [&](size_t i) -> auto& { return row.cells[i]; });
    text += chosen && emphasis == Emphasis::kTerminal
                ? "\x1b[1m" + shown + "\x1b[0m\n"
                : shown + "\n";
  }
  return text;
}

}  // namespace castor
