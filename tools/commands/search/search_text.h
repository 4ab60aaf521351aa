// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_TEXT_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_TEXT_H_

// A search as a page for people. Pure function, thread-safe.

#include <string>

#include "tools/cli/text_table.h"
#include "tools/commands/search/search_report.h"

namespace castor {

// One screen of kPageLines lines and kPageColumns columns, as far as the number
// of groups allows: tables leave out what is between, and say how much.
std::string SearchText(const SearchReport& report, Emphasis emphasis);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_TEXT_H_
