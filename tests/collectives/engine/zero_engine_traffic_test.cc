// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What the engine moves in a step, held to the model that chunk sizes are
// chosen by.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "placement/machine/step_cost.h"
#include "placement/tier_model.h"
#include "tests/support/status_matchers.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

// A second for each byte, so that modelled seconds are bytes.
const TierModel kBytes = {.host_to_device = LinkModel{1, 0},
                          .device_to_host = LinkModel{1, 0},
                          .nvme_read = std::nullopt,
                          .nvme_write = std::nullopt,
                          .all_gather = RingModel{1, 0},
                          .reduce_scatter = RingModel{1, 0}};

class ZeroEngineTrafficTest : public ZeroEngineTest {
 protected:
  // Trains with the least device budget that serves, so that every home is in
  // host memory; `each` are the statistics after each step.
  ToyResult TrainFromHost(const ToyModel& model, ToyRun run, int world,
                          std::vector<EngineStats>* each) {
    run.after_step = [each](ZeroEngine& engine, int) {
      each->push_back(engine.stats());
    };
    ZeroOptions options = Roomy(3);
    options.prefetch.depth = 0;
    options.device_budget = KiB(8);
    ToyResult result;
    do {
      each->clear();
      result = TrainToy(model, run, world, options);
    } while (RaiseAsAsked(result.status, options));
    return result;
  }
};

TEST_F(ZeroEngineTrafficTest, AStepMovesWhatItsModelSays) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int world : {1, 2, 4}) {
      SCOPED_TRACE(testing::Message()
                   << DTypeName(dtype) << " world " << world);
      const ToyModel model = MakeToyModel(6, 40, 1500, dtype);
      ToyRun run;
      run.steps = 4;
      std::vector<EngineStats> each;
      const ToyResult got = TrainFromHost(model, run, world, &each);
      ASSERT_THAT(got.status, IsOk());
      ASSERT_EQ(got.stats.home_bytes[TierIndex(Tier::kDevice)], Bytes(0));
      ASSERT_EQ(each.size(), 4u);

      const auto moved = [&](Tier from, Tier to) {
        return static_cast<double>(
            (each[3].moved[TierIndex(from)][TierIndex(to)] -
             each[2].moved[TierIndex(from)][TierIndex(to)])
                .count());
      };
      const StepCost modelled =
          ModelStep(kBytes,
                    {.chunks = got.stats.chunks,
                     .allocated = got.layout.allocated_bytes(),
                     .trainable = true},
                    world);
      // Gradients come down once, to the byte.
      EXPECT_EQ(moved(Tier::kDevice, Tier::kHost),
                *modelled.on(StepLink::kDeviceToHost));
      // Parameters go up twice, but for copies that are still there when the
      // backward pass begins.
      EXPECT_LE(moved(Tier::kHost, Tier::kDevice),
                *modelled.on(StepLink::kHostToDevice));
      EXPECT_GE(moved(Tier::kHost, Tier::kDevice),
                0.75 * *modelled.on(StepLink::kHostToDevice));
    }
  }
}

}  // namespace
}  // namespace castor
