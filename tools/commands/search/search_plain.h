// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_PLAIN_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_PLAIN_H_

// A search as tab-separated lines for grep and awk. Pure function, thread-safe.

#include <string>

#include "tools/commands/search/search_report.h"

namespace castor {

// A line a candidate, after a line of column names that begins with #.
std::string SearchPlain(const SearchReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_PLAIN_H_
