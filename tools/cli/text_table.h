// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_TEXT_TABLE_H_
#define CASTOR_TOOLS_CLI_TEXT_TABLE_H_

// A table for people: columns as wide as their widest cell, two spaces between
// them, and a mark before the row to look at first. Thread-compatible.

#include <string>
#include <utility>
#include <vector>

namespace castor {

enum class Emphasis { kNone, kTerminal };

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };
  enum class Mark { kNone, kChosen };

  explicit TextTable(std::vector<Column> columns)
      : columns_(std::move(columns)) {}

  // REQUIRES: one cell for each column.
  void AddRow(std::vector<std::string> cells, Mark mark = Mark::kNone);

  // Titles and rows, a line each, each beginning with two columns for the mark
  // and none ending with spaces. A chosen row is bold on a terminal.
  std::string Render(Emphasis emphasis) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    Mark mark;
  };

  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_TEXT_TABLE_H_
