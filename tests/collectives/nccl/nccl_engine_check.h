// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_COLLECTIVES_NCCL_NCCL_ENGINE_CHECK_H_
#define CASTOR_TESTS_COLLECTIVES_NCCL_NCCL_ENGINE_CHECK_H_

// Whole engine steps of one rank on a device and a communicator, whatever they
// are: every chunk gathered, gradients by a fixed rule, reduced, clipped,
// updated; and the same on in-process ranks in host memory. Both have the same
// bits.

#include <string_view>

#include "chunk/base/dtype.h"
#include "chunk/base/log.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "offload/device.h"
#include "offload/lanes/executor.h"
#include "tests/support/status_matchers.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"

namespace castor {

// Options that serve the models of these tests.
inline ZeroOptions CheckedOptions(int stage, const Communicator& comm,
                                  Executor& executor, Log& log) {
  ZeroOptions options;
  options.stage = stage;
  options.executor = &executor;
  options.log = &log;
  options.chunk_size = KiB(8);
  options.device_budget = MiB(4) + comm.buffer_bytes();
  options.host_budget = MiB(8);
  options.clip_norm = 0.05;
  return options;
}

// Called by every rank of the world, each with its own.
inline void ExpectTheBitsOfInProcessRanks(Communicator& comm, Device& device,
                                          Executor& executor, int stage,
                                          DType dtype) {
  const ToyModel model = MakeToyModel(71, 16, 1500, dtype);
  ToyRun run;
  run.steps = 2;
  run.micro_batches = 2;
  run.worker_lanes = 2;
  Log log([](LogLevel, std::string_view) {});
  ZeroOptions options = CheckedOptions(stage, comm, executor, log);
  const ToyResult expected = TrainToy(model, run, comm.world(), options);
  ASSERT_THAT(expected.status, IsOk());

  options.device = &device;
  const ToyResult got = TrainToyRank(model, run, options, &comm);
  ASSERT_THAT(got.status, IsOk());
  EXPECT_EQ(got.weights, expected.weights);
  EXPECT_EQ(got.norms, expected.norms);
  EXPECT_EQ(got.digest, expected.digest);
  // What the plan counts is what went over the wire.
  if (comm.rank() == 0) {
    EXPECT_EQ(got.stats.wire_sent, expected.stats.wire_sent);
  }
  if (comm.world() > 1) {
    EXPECT_EQ(got.stats.engine_copies, Bytes(0));
  }
}

}  // namespace castor

#endif  // CASTOR_TESTS_COLLECTIVES_NCCL_NCCL_ENGINE_CHECK_H_
