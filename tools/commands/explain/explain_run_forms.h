// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_EXPLAIN_EXPLAIN_RUN_FORMS_H_
#define CASTOR_TOOLS_COMMANDS_EXPLAIN_EXPLAIN_RUN_FORMS_H_

// What is known of chunks of a recorded run, for people, for programs, and for
// grep and awk. Pure functions, thread-safe.

#include <string>

#include "chunk/base/json_value.h"
#include "tools/commands/explain/explain_run.h"

namespace castor {

std::string ExplainedRunText(const std::string& file, const ExplainedRun& run);

// castor.run-explanation/1: {"schema", "file", "ranks", "first_step",
// "last_step", "shown_step", "chunks": [{"chunk", "chunk_bytes", "params",
// "resident_share", "fetched", "released", "step": [{"begin_ns", "end_ns",
// "fetched", "released"}], "moves": [{"state", "link", "count", "moved_bytes",
// "ns"}], "stalls": [{"cause", "count", "ns", "busiest", "busiest_share"}]}]}.
JsonValue ExplainedRunJson(const std::string& file, const ExplainedRun& run);

// Lines with fields between tabs:
//   chunk  CHUNK  BYTES  RESIDENT_SHARE  PARAMETERS
//   moves  CHUNK  STATE  LINK  COUNT  BYTES  NS
//   stall  CHUNK  CAUSE  COUNT  NS
std::string ExplainedRunPlain(const ExplainedRun& run);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_EXPLAIN_EXPLAIN_RUN_FORMS_H_
