// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/text/command_text.h"

#include <fmt/format.h>

#include <vector>

#include "tools/cli/text/text_forms.h"

namespace castor {

std::string GivenFlagsText(const OptionTable& table, OptionTable usual) {
  std::string text;
  for (const Option& row : table.rows()) {
    if (row.flag.empty()) continue;
    const std::vector<std::string> words = OptionWords(row);
    if (words == OptionWords(usual.OfFlag(row.flag))) continue;
    for (const std::string& word : words) {
      text += fmt::format(" {}", row.flag);
      if (!word.empty()) text += fmt::format(" {}", ShellWord(word));
    }
  }
  return text;
}

}  // namespace castor
