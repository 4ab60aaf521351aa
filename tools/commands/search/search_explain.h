// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_EXPLAIN_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_EXPLAIN_H_

// Why a choice of chunk sizes wastes what it wastes: by cause and by chunk.
// Pure functions, thread-safe.

#include <cstddef>
#include <string>

#include "chunk/base/json_value.h"
#include "tools/commands/search/search_report.h"

namespace castor {

// The causes in bytes and the `rows` chunks that waste most, with the
// parameters they hold.
std::string ExplainText(const SearchReport& report, const SearchChoice& choice,
                        size_t rows);

// The causes in bytes and every chunk, in elements of its type.
JsonValue ExplainJson(const SearchReport& report, const SearchChoice& choice);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_EXPLAIN_H_
