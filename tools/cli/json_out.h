// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_JSON_OUT_H_
#define CASTOR_TOOLS_CLI_JSON_OUT_H_

// One JSON document as `--json` prints it: keys in the order in which they were
// set, two spaces a level, a newline at the end. Bytes that are not UTF-8 are
// replaced. The same input gives the same bytes, which every reader reads.
// Thread-compatible.

#include <iosfwd>

#include "chunk/text/json_value.h"

namespace castor {

void WriteJson(const JsonValue& document, std::ostream& out);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_JSON_OUT_H_
