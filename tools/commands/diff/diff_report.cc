// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/diff/diff_report.h"

#include <algorithm>

namespace castor {

bool DiffReport::equal() const {
  return std::all_of(sections.begin(), sections.end(), [](const auto& section) {
    return std::all_of(section.rows.begin(), section.rows.end(),
                       [](const DiffRow& row) { return row.equal(); });
  });
}

}  // namespace castor
