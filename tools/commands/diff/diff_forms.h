// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DIFF_DIFF_FORMS_H_
#define CASTOR_TOOLS_COMMANDS_DIFF_DIFF_FORMS_H_

// What two files have in common and what not, for people, for programs, and for
// grep and awk. Pure functions, thread-safe.

#include <string>

#include "chunk/base/json_value.h"
#include "tools/cli/text_table.h"
#include "tools/commands/diff/diff_report.h"

namespace castor {

std::string DiffText(const DiffReport& report, Emphasis emphasis);

// castor.diff/1: {"schema", "kind", "a", "b", "equal", "sections": [{"name",
// "rows": [{"what", "a", "b", "equal"}]}]}, where bytes are "a_bytes" and
// "b_bytes", and times "a_ns", "b_ns", "a_seconds", "b_seconds".
JsonValue DiffJson(const DiffReport& report);

// Lines of a section, what, and the value on both sides, with tabs between.
std::string DiffPlain(const DiffReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DIFF_DIFF_FORMS_H_
