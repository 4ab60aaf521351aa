// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_STEP_WINDOWS_H_
#define CASTOR_TOOLS_REPORT_STEP_WINDOWS_H_

// When each rank was in which step. Pure functions, thread-safe.

#include <cstdint>
#include <vector>

#include "offload/record/record_reader.h"
#include "tools/report/intervals.h"

namespace castor {

// The steps to look at, both ends included. Step 0 is what happens before the
// first.
struct StepRange {
  int32_t first = 1;
  int32_t last = INT32_MAX;

  bool Holds(int32_t step) const { return first <= step && step <= last; }
  bool HoldsAll() const { return first <= 1 && last == INT32_MAX; }
};

struct StepWindow {
  int32_t rank = 0;
  int32_t step = 0;
  Interval time;
  // The record has the step's own event. Otherwise the run or the record ended
  // inside it, and `time` spans the events that are there.
  bool complete = false;
};

// The last step that the record holds, 0 when it holds none. In a complete
// record that is the last that ended: what comes after it, fetched ahead or
// read out, belongs to a step that never began.
int32_t LastStep(const RunRecord& record);

// Those of `steps` that the record holds, by rank, then by step; windows of one
// rank do not overlap, and none is empty.
std::vector<StepWindow> FindStepWindows(const RunRecord& record,
                                        const StepRange& steps);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_STEP_WINDOWS_H_
