// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_TOYS_TOY_TRAINER_H_
#define CASTOR_TESTS_SUPPORT_TOYS_TOY_TRAINER_H_

// Trains a toy model on an engine, through its public doors only, and on plain
// arrays without one, so that weights, norms and everything that was read on
// the way can be compared bit by bit. Thread-compatible.
//
// CASTOR_TEST_HARDWARE_QUEUES=N in the environment gives ranks without a device
// GPUs of a fake with N hardware queues, as TrainToyOnGpus does. So whole
// suites of the engine run on adopted streams.

#include <cstdint>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/chunk_layout.h"
#include "collectives/communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "offload/kernels/optimizer_options.h"
#include "tests/support/toys/toy_gpu.h"
#include "tests/support/toys/toy_model.h"

namespace castor {

struct ToyResult {
  Status status;
  std::vector<std::vector<float>> weights;  // masters where there are any
  std::vector<double> norms;                // per step
  std::vector<StepResult> stepped;          // per step; none of a reference
  // What the trainer saw of a parameter in a step, as a hash of its bits, at
  // step * parameters + parameter; 0: never looked. The last row is for after
  // the last step.
  std::vector<uint64_t> seen;
  uint64_t digest = 0;
  EngineStats stats;
  ChunkLayout layout{1, Elements(64), {}, {}, {}};
};

// Trains on `world` ranks of this process, one thread each, and returns what
// rank 0 saw; a failure of any rank is the status, and so are values that a
// rank sees and another rank, or the same one at another moment of the step,
// does not.
ToyResult TrainToy(const ToyModel& model, const ToyRun& run, int world,
                   const ZeroOptions& options);

// The same on GPUs of a fake. Trainers launch kernels on streams of their own,
// which Castor adopts, and ranks meet through NCCL.
ToyResult TrainToyOnGpus(const ToyModel& model, const ToyRun& run, int world,
                         const ZeroOptions& options, const ToyGpuOptions& gpu);

// What one rank is to do.
struct ToyPart {
  ToyModel model;
  ToyRun run;
  ZeroOptions options;
};

// Trains ranks that need not agree with each other, and returns what each of
// them saw. All use the executor of the first.
std::vector<ToyResult> TrainToyParts(const std::vector<ToyPart>& parts);

// One rank's part of it, on a communicator of the caller's; with a `gpu`, whose
// device the options have, on streams of the trainer's own.
ToyResult TrainToyRank(const ToyModel& model, const ToyRun& run,
                       const ZeroOptions& options, Communicator* communicator,
                       ToyGpu* gpu = nullptr);

// The same on plain arrays, without an engine. Of the options it knows what
// changes numbers: the optimizer and its groups, clipping, loss scaling as far
// as it is static, type and accumulation of gradients.
ToyResult TrainToyReference(const ToyModel& model, const ToyRun& run, int world,
                            const ZeroOptions& options);
ToyResult TrainToyReference(const ToyModel& model, const ToyRun& run, int world,
                            double clip_norm,
                            const OptimizerOptions& optimizer);

// Raises a budget by what a refusal asks for: of the host, if that would do,
// else of the device. False when there is no refusal, or it asks for neither.
bool RaiseAsAsked(const Status& status, ZeroOptions& options);

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_TOYS_TOY_TRAINER_H_
