// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Applies every change of budgets that a refusal proposes, and trains.

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "offload/lanes/executor.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"
#include "tests/support/toys/toy_trainer.h"

namespace castor {
namespace {

struct Drawn {
  ToyModel model;
  ToyRun run;
  int world = 1;
  ZeroOptions options;
};

Drawn Draw(std::mt19937_64& random, const std::string& directory) {
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() %
                                      static_cast<uint64_t>(high - low + 1));
  };
  Drawn drawn;
  const DType dtype = random() % 2 == 0 ? DType::kBF16 : DType::kF32;
  const int64_t largest = random() % 3 == 0 ? 30'000 : 4'000;
  for (int64_t p = between(2, 20); p > 0; --p) {
    drawn.model.params.push_back({"p" + std::to_string(p),
                                  {between(1, largest)},
                                  random() % 8 == 0 ? DType::kF32 : dtype,
                                  random() % 8 != 0});
  }
  drawn.run.steps = 2;
  drawn.world = static_cast<int>(between(1, 2));
  ZeroOptions& options = drawn.options;
  options.stage = static_cast<int>(between(0, 3));
  options.clip_norm = random() % 2 == 0 ? 1 : 0;
  options.device_budget = KiB(between(1, random() % 3 == 0 ? 20 : 300));
  options.host_budget = KiB(between(0, 200));
  if (random() % 2 == 0) {
    options.nvme = {{directory, KiB(between(64, 2000))}};
  }
  switch (random() % 4) {
    case 0:
      options.chunk_size = KiB(between(2, 16));
      break;
    case 1:
      options.min_chunk = KiB(2);
      break;
    default:
      break;
  }
  return drawn;
}

TEST(ZeroEngineRaisesTest, EveryChangeThatARefusalProposesTrains) {
  const TempDir directory;
  ThreadPool pool(2);
  Log quiet([](LogLevel, std::string_view) {});
  std::mt19937_64 random(TestSeed(35));
  int refusals = 0;
  int device = 0;
  int host = 0;
  int nvme = 0;
  while (refusals < TestRounds(200)) {
    const Drawn drawn = Draw(random, directory.path().string());
    const auto train = [&](const ZeroOptions& options) {
      ZeroOptions given = options;
      given.executor = &pool;
      given.log = &quiet;
      return TrainToy(drawn.model, drawn.run, drawn.world, given).status;
    };
    const Status refused = train(drawn.options);
    if (refused.ok()) continue;
    SCOPED_TRACE(testing::Message()
                 << "refusal " << refusals << ", world " << drawn.world
                 << ", device " << drawn.options.device_budget.count()
                 << ", host " << drawn.options.host_budget.count() << ": "
                 << refused);
    ASSERT_EQ(refused.code(), ErrorCode::kInfeasible) << refused;
    ++refusals;
    for (const BudgetRaise& raise : refused.raises()) {
      ZeroOptions raised = drawn.options;
      raised.device_budget += raise.device;
      raised.host_budget += raise.host;
      if (raise.nvme > Bytes(0)) {
        const bool given = !raised.nvme.empty();
        raised.nvme = {
            {directory.path().string(),
             raise.nvme + (given ? *raised.nvme[0].size : Bytes(0))}};
      }
      device += raise.device > Bytes(0);
      host += raise.host > Bytes(0);
      nvme += raise.nvme > Bytes(0);
      ASSERT_THAT(train(raised), IsOk())
          << raise.device.count() << ", " << raise.host.count() << ", "
          << raise.nvme.count();
    }
  }
  EXPECT_GT(device, TestRounds(100));
  EXPECT_GT(host, TestRounds(20));
  EXPECT_GT(nvme, TestRounds(10));
}

}  // namespace
}  // namespace castor
