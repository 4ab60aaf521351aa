// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DIFF_DIFF_DOCUMENTS_H_
#define CASTOR_TOOLS_COMMANDS_DIFF_DIFF_DOCUMENTS_H_

// Two JSON documents of one schema: plans, or what castor plan and castor
// simulate print. Pure function, thread-safe.

#include <vector>

#include "chunk/base/json_value.h"
#include "tools/commands/diff/diff_report.h"

namespace castor {

// A section for all plain values, and one for each other member, with a row for
// each value that differs: named by the way to it, where an element of an array
// goes by what it says of itself ("tier", "name", "from" and "to", "cause"),
// and else by its number. The last row of a section counts those that are
// equal. What names files or commands is left out.
std::vector<DiffSection> DiffDocuments(const JsonValue& a, const JsonValue& b);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DIFF_DIFF_DOCUMENTS_H_
