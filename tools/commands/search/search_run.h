// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_RUN_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_RUN_H_

// From what `castor search` was asked for to its report: reads the model and
// the machine, searches, and writes the layout file. Owner thread only.

#include "chunk/base/status.h"
#include "tools/cli/console.h"
#include "tools/commands/search/search_report.h"
#include "tools/commands/search/search_request.h"

namespace castor {

// Progress and notes go to `console.err`, nothing to `console.out`. Where a
// layout file is asked for, it is there when this succeeds, and nothing of it
// when it does not.
Result<SearchReport> RunSearch(const SearchRequest& request,
                               const Console& console);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_RUN_H_
