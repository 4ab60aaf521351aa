// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_TABLE_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_TABLE_H_

// The choices worth having of one group, as a table for people. Pure function,
// thread-safe.

#include <cstddef>
#include <string>

#include "tools/cli/text_table.h"
#include "tools/commands/search/search_report.h"

namespace castor {

// Rows by chunk size, about `rows` of them: what has a note comes first, and a
// line at the end counts those left out. After them the user's own size, if
// there is one, and what other systems' rules pick. The modelled time is shown
// where a machine is known.
std::string CandidateTable(const SearchReport& report, size_t group,
                           size_t rows, Emphasis emphasis);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_TABLE_H_
