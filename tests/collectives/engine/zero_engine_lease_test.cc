// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What an engine hands out: leases of few and of many parameters.

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/zero_engine.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

class ZeroEngineLeaseTest : public OneRankEngineTest {
 protected:
  Result<ParamLease> AcquireAll(const std::vector<int>& params) {
    std::vector<ParamId> ids;
    for (int p : params) ids.push_back(ids_[static_cast<size_t>(p)]);
    return engine_->Acquire(ids, lane_);
  }
  static void ExpectHolds(const ParamLease& lease,
                          const std::vector<int>& params) {
    ASSERT_EQ(lease.size(), params.size());
    for (size_t i = 0; i < params.size(); ++i) {
      EXPECT_EQ(lease.f32(i)[5], static_cast<float>(params[i] * 1024 + 5));
    }
  }
};

TEST_F(ZeroEngineLeaseTest, AnyNumberOfParametersMovesWithItsLease) {
  Open(Roomy(3), 12);
  SealOptions declared;
  declared.held = {{ids_, {}}};
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  const std::vector<std::vector<int>> some = {
      {}, {3}, {3, 3}, {0, 5, 1, 9}, {0, 1, 2, 3, 11}, {9, 7, 5, 3, 1, 0, 9}};
  for (const std::vector<int>& params : some) {
    for (const std::vector<int>& others : some) {
      Result<ParamLease> first = AcquireAll(params);
      Result<ParamLease> second = AcquireAll(others);
      ASSERT_THAT(first, IsOk());
      ASSERT_THAT(second, IsOk());
      ParamLease moved = *std::move(first);
      ExpectHolds(moved, params);
      EXPECT_EQ(first->size(), 0u);
      // What it held goes, and comes from there.
      moved = *std::move(second);
      ExpectHolds(moved, others);
      moved.Release();
      EXPECT_EQ(moved.size(), 0u);
      moved.Release();
    }
  }
  // Nothing is held any more: a step may end.
  Backward({11, 10, 1, 0});
  EXPECT_THAT(engine_->Step(0.0), IsOk());
  EXPECT_THAT(engine_->Close(), IsOk());
}

// No access fails once the device budget is raised as a refusal says, not even
// one that no step before has shown.
TEST_F(ZeroEngineLeaseTest, TheRaiseThatARefusalNamesIsEnough) {
  for (const bool grow : {true, false}) {
    SCOPED_TRACE(grow ? "slots grow" : "moments are declared");
    ZeroOptions options = Tight(3, KiB(40), KiB(400));
    SealOptions declared;
    declared.grow = grow;
    const auto open = [&] {
      Open(options, 12);
      declared.held = {{{ids_[0], ids_[2]}, {ids_[0], ids_[1]}}};
      ASSERT_THAT(engine_->Seal(declared), IsOk());
    };
    const auto step = [&] {
      ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
      Backward({11, 10, 1, 0});
      ASSERT_THAT(engine_->Step(0.0), IsOk());
    };
    open();
    step();
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    const Status refused =
        AcquireAll({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}).status();
    ASSERT_THAT(refused, StatusIs(ErrorCode::kInfeasible));
    ASSERT_EQ(refused.raises().size(), 1u) << refused;
    options.device_budget += refused.raises()[0].device;
    ASSERT_THAT(engine_->Abandon(), IsOk());
    ASSERT_THAT(engine_->Close(), IsOk());
    open();
    step();
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    Result<ParamLease> all = AcquireAll({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    ASSERT_THAT(all, IsOk());
    Backward({11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
    all->Release();
    EXPECT_THAT(engine_->Step(0.0), IsOk());
    EXPECT_THAT(engine_->Close(), IsOk());
  }
}

TEST_F(ZeroEngineLeaseTest, ALeaseThatFailsInTheMiddleHoldsNothing) {
  ZeroOptions options = Tight(3, KiB(32), KiB(100));
  options.prefetch.depth = 0;
  Open(options, 12);
  SealOptions declared;
  declared.held = {{{ids_[0], ids_[2]}, {ids_[0], ids_[1]}}};
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  EXPECT_THAT(AcquireAll({0, 2, 4, 6, 8, 10}).status(),
              StatusIs(ErrorCode::kInfeasible));
  Result<ParamLease> lease = AcquireAll({8, 9, 6});
  ASSERT_THAT(lease, IsOk());
  ExpectHolds(*lease, {8, 9, 6});
  lease->Release();
  Backward({11, 10, 1, 0});
  EXPECT_THAT(engine_->Step(0.0), IsOk());
  EXPECT_THAT(engine_->Close(), IsOk());
}

// Fills run on a lane of the device's own.
bool IsNaNSoon(const float* value) {
  for (int i = 0; i < 5000; ++i) {
    const std::atomic_ref<float> now(*const_cast<float*>(value));
    if (std::isnan(now.load())) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Where chunks stay on the device too, in all stages.
TEST_F(ZeroEngineLeaseTest, EveryLateReadIsNaNWherePoisonIsOn) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool tight : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << "stage " << stage << ", tight " << tight);
      ZeroOptions options =
          tight ? Tight(stage, KiB(72), KiB(400)) : Roomy(stage);
      options.poison = true;
      ids_.clear();
      Open(options, 12);
      SealOptions declared;
      declared.held = {{{ids_[0], ids_[2]}, {ids_[0], ids_[1]}}};
      ASSERT_THAT(engine_->Seal(declared), IsOk());
      ThreadLane other("other");
      for (int step = 0; step < 3; ++step) {
        ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
        for (int p = 0; p < 12; ++p) {
          Result<ParamLease> first = Acquire(p);
          Result<ParamLease> second = Acquire(p);
          ASSERT_THAT(first, IsOk());
          ASSERT_THAT(second, IsOk());
          first->AlsoUsedOn(other);
          const float* const value = first->f32(0);
          ExpectHolds(*first, {p});
          first->Release();
          EXPECT_TRUE(IsNaNSoon(value + 1023)) << p;
          EXPECT_TRUE(std::isnan(value[0])) << p;
          ExpectHolds(*second, {p});
        }
        Backward({11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
        ASSERT_THAT(engine_->Step(0.0), IsOk());
      }
      ASSERT_THAT(engine_->Close(), IsOk());
      engine_.reset();
      InProcessOptions in_process;
      in_process.executor = &pool_;
      world_ = MakeInProcessWorld(in_process);
    }
  }
}

}  // namespace
}  // namespace castor
