// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Updates in host memory beside a trainer's computing, on a counted clock on
// which computing and updates alone take time. The chunk with the next use is
// updated first, so a step takes no longer than its bound.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/lanes/virtual_executor.h"
#include "offload/twin/simulated_host.h"
#include "placement/tier_model.h"
#include "tests/support/status_matchers.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

constexpr int kChunks = 128;
constexpr int64_t kElements = 1024;         // of each, one parameter
constexpr int64_t kForwardNs = 1'000'000;   // of a chunk
constexpr int64_t kBackwardNs = 2'000'000;  // of a chunk
constexpr int kWhole = 4;             // chunks that the device has room for
constexpr int64_t kUpdateBytes = 28;  // an element, read and written
constexpr double kForward = kChunks * kForwardNs;
constexpr double kBackward = kChunks * kBackwardNs;

enum class Clipping { kNone, kGuessed, kEachStep };

// Where parameters are at home. Beside the device's some chunks are whole
// there.
enum class ParamHomes { kHost, kDevice };

struct FlowCase {
  Clipping clipping;
  ParamHomes homes;
  int percent;  // that updates take of computing
};

class ZeroEngineFlowTest : public ZeroEngineTest,
                           public testing::WithParamInterface<FlowCase> {
 protected:
  // How long a step takes once steps are alike.
  double StepNs(double update_ns) {
    VirtualExecutor time;
    VirtualParticipant participant(&time);
    const double bytes = kUpdateBytes * kElements * kChunks;
    SimulatedHostModel model;
    model.optimizer = RateModel{static_cast<int64_t>(bytes / update_ns * 1e9)};
    SimulatedHost host(model, &time);
    const auto ranks = MakeInProcessWorld(
        {.executor = &time, .timeout_ns = 0, .clock = &time});
    ZeroOptions options = Roomy(3);
    options.executor = &time;
    options.clock = &time;
    options.host_passes = &host;
    options.chunk_size = KiB(4);
    options.device_budget = KiB(64);
    if (GetParam().homes == ParamHomes::kDevice) {
      options.device_budget += KiB(4) * kChunks + KiB(16) * kWhole;
    }
    if (GetParam().clipping == Clipping::kEachStep) options.clip_norm = 1e-3;
    if (GetParam().clipping == Clipping::kGuessed) options.clip_norm = 1e9;
    options.guess_updates = GetParam().clipping != Clipping::kNone;
    if (spare_) options.host_budget = used_ + *spare_;
    std::unique_ptr<ZeroEngine> engine =
        *ZeroEngine::Create(options, ranks[0].get());
    std::vector<ParamId> ids;
    for (int p = 0; p < kChunks; ++p) {
      ids.push_back(*engine->Register(
          {"p" + std::to_string(p), {kElements}, DType::kF32}, {}));
    }
    EXPECT_THAT(engine->Seal({}), IsOk());
    // The first step, which no plan foresees, has other keys than the others.
    if (reversed_) std::reverse(ids.begin(), ids.end());
    WorkerLane lane("compute", &time);
    const auto compute = [&](int64_t ns) {
      lane.RunAsync([&time, ns](EventSource source) {
        time.At(time.NowNs() + ns, [source] { source.Complete(); });
      });
    };
    const auto use = [&](const ParamId& id, int64_t ns) {
      Result<ParamLease> lease = engine->Acquire(std::span(&id, 1), lane);
      EXPECT_THAT(lease, IsOk());
      compute(ns);
    };
    std::vector<int64_t> ends;
    for (int step = 0; step < 6; ++step) {
      EXPECT_THAT(engine->BeginMicroBatch(true), IsOk());
      for (const ParamId& id : ids) use(id, kForwardNs);
      if (GetParam().clipping == Clipping::kNone) {
        EXPECT_THAT(engine->UpdateEarly(0.1), IsOk());
      } else {
        EXPECT_THAT(engine->GuessUpdates(0.1), IsOk());
      }
      for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
        use(*id, kBackwardNs);
        const Result<void*> grad = engine->Grad(*id, lane);
        EXPECT_THAT(grad, IsOk());
        lane.Run([data = static_cast<float*>(*grad)] {
          std::fill_n(data, kElements, 1.0f);
          return OkStatus();
        });
        EXPECT_THAT(engine->GradReady(*id, lane), IsOk());
      }
      lane.Run([&] {
        ends.push_back(time.NowNs());
        return OkStatus();
      });
      EXPECT_THAT(engine->Step(0.1), IsOk());
    }
    EXPECT_THAT(lane.Drain(), IsOk());
    right_guesses_ = engine->stats().right_guesses;
    if (!spare_) {
      const EngineStats stats = engine->stats();
      used_ = stats.home_bytes[TierIndex(Tier::kHost)];
    }
    EXPECT_THAT(engine->Close(), IsOk());
    return static_cast<double>(ends[5] - ends[3]) / 2;
  }

  bool reversed_ = false;       // the last chunk is used first
  std::optional<Bytes> spare_;  // of host memory, beside homes
  Bytes used_;                  // by homes
  int64_t right_guesses_ = 0;
};

class DroppedGuessesTest : public ZeroEngineFlowTest {};
class SomeGuessesTest : public ZeroEngineFlowTest {};

TEST_P(ZeroEngineFlowTest, AStepTakesItsBound) {
  const double update = (kForward + kBackward) * GetParam().percent / 100;
  const double bound = GetParam().clipping == Clipping::kEachStep
                           ? kBackward + std::max(kForward, update)
                           : std::max(kForward + kBackward, update);
  EXPECT_LE(StepNs(update), 1.02 * bound);
}

// The first step's guesses are dropped before most have begun, and its updates
// have other keys.
TEST_P(DroppedGuessesTest, UpdatesBehindThemBegin) {
  reversed_ = true;
  const double update = (kForward + kBackward) * GetParam().percent / 100;
  EXPECT_LE(StepNs(update), 1.02 * (kBackward + std::max(kForward, update)));
}

// Guesses that are under way when the step's other updates come hold staging
// and wait for the lane, and none of these waits for ever.
TEST_P(SomeGuessesTest, AStepTakesNoLongerThanWithoutThem) {
  const double update = (kForward + kBackward) * GetParam().percent / 100;
  StepNs(update);
  const int64_t all = right_guesses_;
  int64_t fewer = 0;
  for (const Bytes spare : {KiB(64), KiB(600), KiB(1000)}) {
    spare_ = spare;
    EXPECT_LE(StepNs(update), 1.02 * (kBackward + std::max(kForward, update)));
    fewer += right_guesses_ > 0 && right_guesses_ < all;
  }
  EXPECT_GT(fewer, 1);
}

std::vector<FlowCase> Cases(std::vector<Clipping> clippings,
                            std::vector<int> percents) {
  std::vector<FlowCase> cases;
  for (const Clipping clipping : clippings) {
    for (const ParamHomes homes : {ParamHomes::kHost, ParamHomes::kDevice}) {
      for (const int percent : percents) {
        cases.push_back({clipping, homes, percent});
      }
    }
  }
  return cases;
}

std::string NameOf(const testing::TestParamInfo<FlowCase>& info) {
  const char* const names[] = {"Early", "Guessed", "Clipped"};
  return std::string(names[static_cast<size_t>(info.param.clipping)]) +
         (info.param.homes == ParamHomes::kHost ? "" : "OnTheDevice") +
         std::to_string(info.param.percent);
}

INSTANTIATE_TEST_SUITE_P(
    Updates, ZeroEngineFlowTest,
    testing::ValuesIn(Cases({Clipping::kNone, Clipping::kGuessed,
                             Clipping::kEachStep},
                            {30, 60, 90, 97, 110, 150, 300})),
    NameOf);
INSTANTIATE_TEST_SUITE_P(Updates, DroppedGuessesTest,
                         testing::ValuesIn(Cases({Clipping::kEachStep},
                                                 {97, 150, 300})),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Updates, SomeGuessesTest,
                         testing::ValuesIn(Cases({Clipping::kGuessed},
                                                 {30, 97, 300})),
                         NameOf);

}  // namespace
}  // namespace castor
