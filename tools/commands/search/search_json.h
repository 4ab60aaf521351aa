// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_JSON_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_JSON_H_

// A search as one JSON document for programs: design section 5, schema
// "castor.search/1". Pure function, thread-safe.

#include "chunk/base/json_value.h"
#include "tools/commands/search/search_report.h"

namespace castor {

// With several groups, candidates name theirs, `best`, `recommended` and
// `certificate` are lists, one entry a group, and `totals` adds up what each
// choice costs; with none, the first two are null. `certificate` proves `best`;
// `certificates` has one entry for each group and mode. Where the experts of a
// model were searched in both ways, `expert_layouts` has both results, and the
// document around it is that of the model as it is.
JsonValue SearchJson(const SearchReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_JSON_H_
