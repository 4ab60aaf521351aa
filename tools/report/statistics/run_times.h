// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_STATISTICS_RUN_TIMES_H_
#define CASTOR_TOOLS_REPORT_STATISTICS_RUN_TIMES_H_

// When each rank of a recorded run was in which step, and when which chunk was
// whole on its device. Pure functions, thread-safe.
// Part of the statistics of a run (run_statistics.h).

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "offload/record/record_reader.h"
#include "placement/run_event.h"
#include "placement/trace.h"
#include "tools/report/statistics/intervals.h"

namespace castor {

// The steps to look at, both ends included. Step 0 is what happens before the
// first.
struct StepRange {
  int32_t first = 1;
  int32_t last = INT32_MAX;

  bool Holds(int32_t step) const { return first <= step && step <= last; }
  bool HoldsAll() const { return first <= 1 && last == INT32_MAX; }
};

// "7", or "2-30" with both ends included; steps count from 1. InvalidArgument
// for anything else.
Result<StepRange> ParseStepRange(std::string_view text);

// The record's events of `steps`, by begin; those before the first step too if
// `steps` are all of them.
std::vector<RunEvent> EventsOf(const RunRecord& record, const StepRange& steps);

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

// A time for which a chunk's parameters were whole on the device, or on their
// way to it: from the first transfer or gather into a slot to the release that
// dropped the copy. Chunks whose home is the device are there always and not
// meant here.
struct Residency {
  int32_t rank = 0;
  int32_t chunk = 0;
  int32_t step = 0;  // for which it came
  Interval time;
  RunCause fetched = RunCause::kNone;   // why it came
  RunCause released = RunCause::kNone;  // why it went; kNone: it did not
  // Which event made it whole: of those that fetched it, the last to end.
  size_t made_by = 0;
  int64_t first_use_ns = 0;  // its end where it never was used
};

// By rank, chunk and time. Those of one chunk on one rank do not overlap, even
// where a release is missing: then the next fetch ends it, or the last event.
// Where steps are not in the record, what was there before them ends with them.
std::vector<Residency> FindResidencies(std::span<const RunEvent> events);

// All the time that a step takes where the trainer's lane is: calls on a stream
// return ahead of it, and what is between two steps belongs to the second. From
// the end of the step before, its last use or its last call, to its own; from
// its first call where the step before is not in the record. Nothing where the
// record does not hold the step whole.
std::optional<Interval> FindLaneTime(const RunRecord& record, int32_t rank,
                                     int32_t step);

// When the uses of a trace were in one step of a rank, by their moments. The
// uses of a chunk follow each other alike in the trace and in the step; a chunk
// whose uses are not as many in both is left out.
std::map<size_t, Interval> FindUses(const Trace& trace,
                                    std::span<const RunEvent> events,
                                    int32_t rank, int32_t step);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_STATISTICS_RUN_TIMES_H_
