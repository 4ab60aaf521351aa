// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_TOY_TRAINER_H_
#define CASTOR_TESTS_SUPPORT_TOY_TRAINER_H_

// A model small enough to compute by hand and a trainer for it: every parameter
// is used in a forward and a backward sweep, and its gradient is a fixed
// function of its own values, the rank, the step and the micro-batch. The same
// function serves a reference on plain arrays, so that an engine's weights can
// be compared bit by bit. Thread-compatible.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "collectives/zero_engine.h"
#include "offload/executor.h"

namespace castor {

struct ToyModel {
  std::vector<ParamSpec> params;
};

// `count` parameters of random shapes, the largest of `largest` elements; a
// scalar and an empty one among them when there are more than three.
ToyModel MakeToyModel(uint64_t seed, int count, int64_t largest, DType dtype);

struct ToyRun {
  int steps = 3;
  int micro_batches = 1;
  double lr = 0.05;
  // Parameters skipped (no gradient) in every step.
  std::vector<int> unused;
  // Called on rank 0 after every step.
  std::function<void(ZeroEngine&, int step)> after_step;
};

struct ToyResult {
  Status status;
  std::vector<std::vector<float>> weights;  // masters where there are any
  std::vector<double> norms;                // per step
  uint64_t digest = 0;
  EngineStats stats;
  ChunkLayout layout{1, Elements(64), {}, {}, {}};
};

// Trains on `world` in-process ranks, one thread each, and returns what rank 0
// saw; a failure of any rank is the status.
ToyResult TrainToy(const ToyModel& model, const ToyRun& run, int world,
                   const ZeroOptions& options);

// One rank's part of it, on a communicator of the caller's.
ToyResult TrainToyRank(const ToyModel& model, const ToyRun& run,
                       const ZeroOptions& options, Communicator* communicator);

// The same on plain arrays, without an engine.
ToyResult TrainToyReference(const ToyModel& model, const ToyRun& run, int world,
                            double clip_norm, const AdamWOptions& optimizer);

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_TOY_TRAINER_H_
