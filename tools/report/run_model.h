// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_RUN_MODEL_H_
#define CASTOR_TOOLS_REPORT_RUN_MODEL_H_

// A recorded run that can be simulated again, with other budgets and options:
// the record's documents, compute times taken from its events, and links as
// fast as its machine's file says, or as they were in the run. Pure
// functions, thread-safe.

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/dry/simulation_result.h"
#include "collectives/memory/sharding.h"
#include "collectives/zero_options.h"
#include "offload/record/record_reader.h"
#include "placement/tier_model.h"
#include "placement/trace/step_trace.h"
#include "placement/trace/trace_file.h"
#include "tools/report/statistics/run_setup.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {

struct RunModel {
  int32_t rank = 0;  // whose step it is
  int32_t of_step = 0;
  int64_t measured_ns = 0;  // of that step
  int world = 1;
  TraceFile trace;  // with compute times
  std::vector<ParamSpec> params;
  ChunkLayout layout{1, Elements(64), {}, {}, {}};
  ZeroOptions options;
  TierModel machine;  // a rank's share of it
  SimTrainer trainer = SimTrainer::kStream;
};

// The step `step` of the lowest rank. FailedPrecondition, saying what is not
// there, for a record of before there were documents, or one without the step.
Result<RunModel> ModelOf(const RunRecord& record, const RunSetup& setup,
                         const RunStatistics& run, int32_t step);

// The trace with the time that the rank computed between its accesses in that
// step. Waits are none of it.
TraceFile WithMeasuredTimes(const RunRecord& record, TraceFile trace,
                            int32_t rank, int32_t step);

// The speeds that the run's links had while they were busy, and its updates.
TierModel MeasuredMachine(const RunRecord& record, const RunStatistics& run,
                          const ChunkLayout& layout, const Sharding& sharding);

// A steady step of the model. Infeasible, with numbers, where it does not fit.
Result<SimulatedStep> SimulateModel(const RunModel& model);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_RUN_MODEL_H_
