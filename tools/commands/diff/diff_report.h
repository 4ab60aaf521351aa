// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DIFF_DIFF_REPORT_H_
#define CASTOR_TOOLS_COMMANDS_DIFF_DIFF_REPORT_H_

// What two files have in common and what not, whatever they are. Values.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace castor {

// Empty: the file has no such thing.
using DiffValue = std::variant<std::monostate, int64_t, double, std::string>;

enum class DiffUnit : uint8_t { kNone, kBytes, kNs, kSeconds };

struct DiffRow {
  std::string what;
  DiffUnit unit = DiffUnit::kNone;
  DiffValue a;
  DiffValue b;

  bool equal() const { return a == b; }
};

struct DiffSection {
  std::string name;
  std::vector<DiffRow> rows;
};

struct DiffReport {
  std::string kind;  // "runs", "plans", "layouts", ...
  std::string a;     // files
  std::string b;
  std::vector<DiffSection> sections;

  bool equal() const;
};

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DIFF_DIFF_REPORT_H_
