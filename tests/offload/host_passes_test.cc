// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What passes over host memory promise, of the machine and of its twin, and the
// time that those of the twin take.

#include "offload/host_passes.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"
#include "offload/lanes/timer.h"
#include "offload/lanes/virtual_executor.h"
#include "offload/twin/simulated_host.h"
#include "placement/tier_model.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A byte in a nanosecond; other passes than updates take twice as long.
constexpr SimulatedHostModel kModel = {RateModel{1'000'000'000},
                                       RateModel{500'000'000}};

enum class Kind { kMachine, kTwin, kTwinWithoutTime };

class HostPassesTest : public testing::TestWithParam<Kind> {
 protected:
  HostPassesTest() {
    if (GetParam() == Kind::kTwin) twin_.emplace(kModel, &timer_);
    if (GetParam() == Kind::kTwinWithoutTime) {
      twin_.emplace(SimulatedHostModel{}, &timer_);
    }
  }
  HostPasses& passes() { return twin_ ? *twin_ : HostPasses::Machine(); }

  SteadyTimer timer_;
  ThreadPool pool_{2};
  std::optional<SimulatedHost> twin_;
};

TEST_P(HostPassesTest, RunOneAfterTheOtherInTheirOrder) {
  for (const bool on_thread : {false, true}) {
    std::unique_ptr<Lane> lane;
    if (on_thread) {
      lane = std::make_unique<ThreadLane>("thread");
    } else {
      lane = std::make_unique<WorkerLane>("host", &pool_);
    }
    std::vector<int> ran;
    for (int i = 0; i < 6; ++i) {
      const HostPass pass = static_cast<HostPass>(i % 3);
      passes().Queue(*lane, pass, KiB(i), [&ran, i] {
        ran.push_back(i);
        return OkStatus();
      });
    }
    EXPECT_THAT(lane->Drain(), IsOk());
    EXPECT_THAT(ran, ElementsAre(0, 1, 2, 3, 4, 5));
  }
}

TEST_P(HostPassesTest, AFailureIsTheLanesAndEndsWhatFollows) {
  WorkerLane lane("host", &pool_);
  bool followed = false;
  passes().Queue(lane, HostPass::kUpdate, MiB(1),
                 [] { return Unavailable("the pass broke"); });
  passes().Queue(lane, HostPass::kMemory, MiB(1), [&followed] {
    followed = true;
    return OkStatus();
  });
  EXPECT_THAT(lane.Drain(),
              StatusIs(ErrorCode::kUnavailable, HasSubstr("the pass broke")));
  EXPECT_FALSE(followed);
}

// Nothing is written while a transfer that the pass waits for is under way.
TEST_P(HostPassesTest, WaitForWhatTheLaneWaitsFor) {
  WorkerLane lane("host", &pool_);
  const EventSource there;
  bool ran = false;
  lane.Wait(there.event());
  passes().Queue(lane, HostPass::kMemory, KiB(1), [&ran] {
    ran = true;
    return OkStatus();
  });
  const Event done = lane.Record();
  EXPECT_FALSE(done.done());
  there.Complete();
  EXPECT_THAT(done.Wait(), IsOk());
  EXPECT_TRUE(ran);
}

INSTANTIATE_TEST_SUITE_P(All, HostPassesTest,
                         testing::Values(Kind::kMachine, Kind::kTwin,
                                         Kind::kTwinWithoutTime),
                         [](const testing::TestParamInfo<Kind>& of) {
                           return std::string(
                               of.param == Kind::kMachine ? "Machine"
                               : of.param == Kind::kTwin  ? "Twin"
                                                          : "TwinWithoutTime");
                         });

// Two lanes share the cores: their passes take turns.
TEST(SimulatedHostTest, PassesTakeTheModelledTimeExactly) {
  VirtualExecutor clock;
  SimulatedHost host(kModel, &clock);
  const VirtualParticipant turn(&clock);
  WorkerLane first("first", &clock);
  WorkerLane second("second", &clock);
  std::vector<int64_t> begun;
  const auto pass = [&](Lane& lane, HostPass kind, int64_t bytes) {
    host.Queue(lane, kind, Bytes(bytes), [&] {
      begun.push_back(clock.NowNs());
      return OkStatus();
    });
  };
  pass(first, HostPass::kUpdate, 1000);
  pass(first, HostPass::kMemory, 100);
  pass(second, HostPass::kMemory, 50);
  EXPECT_THAT(first.Drain(), IsOk());
  // 1,000 of the update, 100 of the other lane's pass, 200 of the sum.
  EXPECT_EQ(clock.NowNs(), 1300);
  EXPECT_THAT(second.Drain(), IsOk());
  EXPECT_THAT(begun, ElementsAre(0, 0, 1000));
  EXPECT_EQ(host.busy_ns(), 1300);
}

}  // namespace
}  // namespace castor
