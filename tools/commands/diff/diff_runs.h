// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DIFF_DIFF_RUNS_H_
#define CASTOR_TOOLS_COMMANDS_DIFF_DIFF_RUNS_H_

// Two recorded runs, next to each other. Pure function, thread-safe.

#include <vector>

#include "offload/record/record_reader.h"
#include "tools/commands/diff/diff_report.h"
#include "tools/report/run_times.h"

namespace castor {

// Times and bytes are of a step, in the median of those of `steps` that are
// complete, bytes of all ranks together; stalls are the mean of a step. Homes
// are told as far as transfers show them.
std::vector<DiffSection> DiffRuns(const RunRecord& a, const RunRecord& b,
                                  const StepRange& steps);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DIFF_DIFF_RUNS_H_
