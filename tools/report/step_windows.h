// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_STEP_WINDOWS_H_
#define CASTOR_TOOLS_REPORT_STEP_WINDOWS_H_

// When each rank was in which step. Pure function, thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "placement/run_event.h"
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

// By rank, then by step; windows of one rank do not overlap, and none is empty.
std::vector<StepWindow> FindStepWindows(std::span<const RunEvent> events,
                                        const StepRange& steps);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_STEP_WINDOWS_H_
