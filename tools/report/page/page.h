// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_PAGE_PAGE_H_
#define CASTOR_TOOLS_REPORT_PAGE_PAGE_H_

// One self-contained HTML page that draws a document: no file, no network.
// Pure function, thread-safe.

#include <string>

#include "chunk/text/json_value.h"

namespace castor {

// `document` is what `castor report --json` prints. Same document, same bytes.
std::string RunPage(const JsonValue& document);

// The same of what `castor plan --json --html` prints.
std::string PlanPage(const JsonValue& document);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_PAGE_PAGE_H_
