// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_EXPLAIN_EXPLAIN_RUN_H_
#define CASTOR_TOOLS_COMMANDS_EXPLAIN_EXPLAIN_RUN_H_

// Where chunks of a recorded run were over its steps, what was moved of them
// and why, and who waited for them. Pure function, thread-safe. Part of castor
// explain (explain_command.cc).

#include <string>

#include "chunk/base/status.h"
#include "offload/record/record_reader.h"
#include "tools/cli/document.h"
#include "tools/report/run_times.h"

namespace castor {

// Of the chunks that match: by a parameter's name, as far as the record has it,
// or as chunk.N. InvalidArgument, with the nearest name, where none does, and
// where the record holds none of the steps. castor.run-explanation/1 in JSON,
// and lines of --plain:
//   chunk  CHUNK  BYTES  RESIDENT_SHARE  PARAMETERS
//   moves  CHUNK  STATE  LINK  COUNT  BYTES  NS
//   stall  CHUNK  CAUSE  COUNT  NS
Result<Document> ExplainRun(const std::string& file, const RunRecord& record,
                            const std::string& pattern, const StepRange& steps);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_EXPLAIN_EXPLAIN_RUN_H_
