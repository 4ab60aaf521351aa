// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_BENCH_SUPPORT_COMPARED_RUNS_H_
#define CASTOR_TOOLS_BENCH_SUPPORT_COMPARED_RUNS_H_

// The runs that simulator_comparison makes and simulates. Pure functions,
// thread-safe.

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/dry/simulation_result.h"
#include "placement/plan.h"
#include "placement/tier_model.h"
#include "tools/bench/support/twin_training.h"
#include "tools/examples/gpt/model/gpt_params.h"

namespace castor {

struct ComparedRun {
  gpt::GptConfig model;
  DType dtype = DType::kF32;
  Bytes device;
  Bytes host;
  int ranks = 1;
  int stage = 3;
  Bytes chunk;
  PlanPolicy policy = PlanPolicy::kAuto;
  bool nvme = false;
  int micro_batches = 1;
  SimTrainer trainer = SimTrainer::kStream;

  // "8x512 F32".
  std::string Name() const;
};

// Where and how long runs are made.
struct TwinPlace {
  std::string nvme;    // folder of the drives' files
  int64_t slower = 1;  // how much the devices' memory is than the machine's
  int steps = 7;
  Log* log = nullptr;
};

// Three models by four rooms by two chunk sizes, on one rank and on two; what
// else there is changes from one to the next.
std::vector<ComparedRun> ComparedRuns();

// On the machine's clock. REQUIRES: the machine knows the speed of memory.
TwinTraining TrainingOf(const ComparedRun& run, const TierModel& machine,
                        const TwinPlace& place);

}  // namespace castor

#endif  // CASTOR_TOOLS_BENCH_SUPPORT_COMPARED_RUNS_H_
