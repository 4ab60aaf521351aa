// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Updates that begin before the norm is known (ZeroEngine::GuessUpdates): the
// step takes right guesses and drops wrong guesses, and nobody sees new values
// before the step. zero_engine_random_test compares bits with plain arrays.

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/lanes/virtual_executor.h"
#include "offload/nvme/queue/file_calls.h"
#include "offload/nvme/queue/simulated_io_queue.h"
#include "offload/twin/simulated_link.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_rounds.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

constexpr double kRate = 0.1;

class ZeroEngineGuessTest : public OneRankEngineTest {
 protected:
  // States are in host memory, which has room for each guess.
  ZeroOptions InHostMemory() {
    ZeroOptions options = Roomy(3);
    options.device_budget = KiB(80);
    options.clip_norm = 1e6;
    options.guess_updates = true;
    return options;
  }
  void OpenModel(const ZeroOptions& options) {
    Open(options, params_);
    ASSERT_THAT(engine_->Seal({}), IsOk());
  }
  // A micro-batch's gradients, of ones, and the rate that they are guessed at.
  void Gradients(double rate = kRate) {
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    ASSERT_THAT(engine_->GuessUpdates(rate), IsOk());
    std::vector<int> all;
    for (int p = params_; p-- > 0;) all.push_back(p);
    Backward(all);
  }
  void Step(double rate = kRate) { ASSERT_THAT(engine_->Step(rate), IsOk()); }
  int64_t chunks() const { return params_ / 2; }
  int64_t guesses() { return engine_->stats().guesses; }
  int64_t right() { return engine_->stats().right_guesses; }
  std::vector<float> Values(int p) {
    std::vector<float> values(1024);
    EXPECT_THAT(engine_->ReadParam(ids_[static_cast<size_t>(p)], values),
                IsOk());
    return values;
  }
  // All values after `steps` calls of `step`.
  std::vector<float> Trained(const ZeroOptions& options,
                             const std::function<void(int)>& step, int steps) {
    engine_ = nullptr;
    ids_.clear();
    OpenModel(options);
    for (int s = 0; s < steps; ++s) step(s);
    std::vector<float> all;
    for (int p = 0; p < params_; ++p) {
      const std::vector<float> values = Values(p);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  void ExpectSameWithoutGuesses(const std::function<void(int)>& step,
                                int steps) {
    const std::vector<float> guessed = Trained(InHostMemory(), step, steps);
    const int64_t begun = guesses();
    ZeroOptions plain = InHostMemory();
    plain.guess_updates = false;
    EXPECT_EQ(guessed, Trained(plain, step, steps));
    EXPECT_GT(begun, 0);
    EXPECT_EQ(guesses(), 0);
  }

  int params_ = 16;  // of 1,024 elements, two in a chunk
};

TEST_F(ZeroEngineGuessTest, EachChunkIsGuessedAndTaken) {
  ExpectSameWithoutGuesses([&](int) { Gradients(), Step(); }, 4);
  Trained(
      InHostMemory(), [&](int) { Gradients(), Step(); }, 4);
  EXPECT_EQ(guesses(), 4 * chunks());
  EXPECT_EQ(right(), 4 * chunks());
}

TEST_F(ZeroEngineGuessTest, UntilTheStepValuesAreOld) {
  OpenModel(InHostMemory());
  Gradients();
  ASSERT_EQ(guesses(), chunks());
  for (const int p : {0, 7, 15}) ExpectInitialValues(p);
  Step();
  EXPECT_NE(Values(0)[5], 5.0f);
}

TEST_F(ZeroEngineGuessTest, AClippedStepDropsAllAndGuessingPauses) {
  ZeroOptions options = InHostMemory();
  options.clip_norm = 1e-3;
  Trained(
      options, [&](int) { Gradients(), Step(); }, 8);
  EXPECT_EQ(right(), 0);
  // Steps 1, 3 and 6: a pause of 1, then of 2, then of 4.
  EXPECT_EQ(guesses(), 3 * chunks());
}

// On a counted clock, which goes on once all work so far is over.
class CountedGuessTest : public ZeroEngineGuessTest {
 protected:
  CountedGuessTest() {
    world_ = MakeInProcessWorld(
        {.executor = &time_, .timeout_ns = 0, .clock = &time_});
  }
  ~CountedGuessTest() override { engine_ = nullptr; }

  ZeroOptions OnClock() {
    ZeroOptions options = InHostMemory();
    options.executor = &time_;
    options.clock = &time_;
    options.nvme_checksums = &time_;
    return options;
  }
  void EndAllWork() {
    const EventSource later;
    time_.At(time_.NowNs() + 1'000'000, [later] { later.Complete(); });
    EXPECT_THAT(later.event().Wait(), IsOk());
  }

  VirtualExecutor time_;
  VirtualParticipant participant_{&time_};
};

// A write of new states that fails before the step takes the guess with it. The
// homes are as they were, and the step updates them.
TEST_F(CountedGuessTest, AFailedWriteDropsTheGuess) {
  ZeroOptions options = OnClock();
  options.nvme = {{nvme_.path(), std::nullopt}};
  for (const char* state : {"exp_avg", "exp_avg_sq"}) {
    options.home_rules.push_back(
        {.glob = "*", .state = state, .tier = Tier::kNvme});
  }
  SimulatedLinks drive(DriveModelOf({}));
  int to_fail = 0;
  int failed = 0;
  FileCalls calls;
  calls.pwrite = [&](int fd, const void* from, size_t bytes, off_t offset) {
    if (to_fail == 0) return ::pwrite(fd, from, bytes, offset);
    --to_fail;
    ++failed;
    errno = EIO;
    return ssize_t{-1};
  };
  options.make_nvme_queue = [&](size_t) {
    return MakeSimulatedIoQueue(
        {.links = &drive, .executor = &time_, .timer = &time_, .calls = calls});
  };
  const auto step = [&](int s) {
    EndAllWork();
    to_fail = s == 1 ? 1 : 0;
    Gradients();
    EndAllWork();
    EXPECT_EQ(to_fail, 0);
    Step();
  };
  const std::vector<float> guessed = Trained(options, step, 4);
  EXPECT_EQ(failed, 1);
  // One chunk is updated by the step, and the next step makes no guesses.
  EXPECT_EQ(guesses(), 3 * chunks());
  EXPECT_EQ(right(), 3 * chunks() - 1);
  options.guess_updates = false;
  options.make_nvme_queue = nullptr;
  EXPECT_EQ(guessed, Trained(
                         options, [&](int) { Gradients(), Step(); }, 4));
  engine_ = nullptr;
}

TEST_F(ZeroEngineGuessTest, AnotherRateThanGuessedDropsAll) {
  ExpectSameWithoutGuesses(
      [&](int step) {
        Gradients(step == 0 ? kRate : 2 * kRate);
        Step();
      },
      2);
  Trained(
      InHostMemory(), [&](int) { Gradients(2 * kRate), Step(); }, 1);
  EXPECT_EQ(right(), 0);
}

TEST_F(ZeroEngineGuessTest, GuessesAreOfTheMicroBatchThatWasTheLastBefore) {
  const auto step = [&](int) {
    Gradients();
    Gradients();
    Step();
  };
  ExpectSameWithoutGuesses(step, 3);
  Trained(InHostMemory(), step, 3);
  // In the first step both are taken for the last one.
  EXPECT_EQ(guesses(), 4 * chunks());
  EXPECT_EQ(right(), 3 * chunks());
}

TEST_F(ZeroEngineGuessTest, AWriteDropsTheGuessOfItsChunk) {
  const std::vector<float> values(1024, 0.25f);
  const auto step = [&](int s) {
    Gradients();
    switch (s) {
      case 0:
        ASSERT_THAT(engine_->WriteGrad(ids_[3], values), IsOk());
        break;
      case 1:
        ASSERT_THAT(engine_->WriteBack(
                        std::vector{ZeroEngine::ParamValues{ids_[6], values}}),
                    IsOk());
        break;
      default:
        ASSERT_THAT(engine_->DropGradient(ids_[9]), IsOk());
    }
    Step();
  };
  ExpectSameWithoutGuesses(step, 3);
  Trained(InHostMemory(), step, 3);
  EXPECT_EQ(guesses(), 3 * chunks());
  EXPECT_EQ(right(), 3 * chunks() - 3);
}

TEST_F(ZeroEngineGuessTest, NumbersThatChangeDropAll) {
  ZeroOptions options = InHostMemory();
  OptimizerGroup group;
  group.name = "all";
  options.groups = {group};
  OpenModel(options);
  Gradients();
  HyperParameters decay;
  decay.weight_decay = 0.5;
  ASSERT_THAT(engine_->SetHyperParameters("all", decay), IsOk());
  Step();
  EXPECT_EQ(guesses(), chunks());
  EXPECT_EQ(right(), 0);
}

TEST_F(ZeroEngineGuessTest, AnAbandonedStepLeavesNothing) {
  OpenModel(InHostMemory());
  Gradients();
  ASSERT_THAT(engine_->Abandon(), IsOk());
  for (int p = 0; p < params_; ++p) ExpectInitialValues(p);
  EXPECT_EQ(right(), 0);
  Gradients();
  Step();
  EXPECT_EQ(right(), chunks());
}

TEST_F(ZeroEngineGuessTest, ACheckpointInsideAStepHasOldValues) {
  TempDir folder;
  OpenModel(InHostMemory());
  Gradients();
  Step();
  const std::vector<float> before = Values(4);
  SaveOptions save;
  save.directory = folder.path();
  save.wait = false;
  ASSERT_THAT(engine_->Save(save), IsOk());
  Gradients();  // which are guessed while the save reads homes
  Step();
  ASSERT_THAT(engine_->FinishSave(), IsOk());
  EXPECT_EQ(right(), 2 * chunks());
  EXPECT_NE(Values(4), before);
  LoadOptions load;
  load.directory = folder.path();
  ASSERT_THAT(engine_->Load(load), IsOk());
  EXPECT_EQ(Values(4), before);
}

TEST_F(ZeroEngineGuessTest, WithLittleRoomFewerAreGuessedAndBudgetsHold) {
  ZeroOptions options = InHostMemory();
  OpenModel(options);
  const Bytes homes = engine_->stats().home_bytes[TierIndex(Tier::kHost)];
  int64_t before = -1;
  for (const Bytes spare : {KiB(64), KiB(128), KiB(400)}) {
    options.host_budget = homes + spare;
    Trained(
        options, [&](int) { Gradients(), Step(); }, 2);
    EXPECT_GT(guesses(), before);
    EXPECT_LE(guesses(), 2 * chunks());
    EXPECT_EQ(guesses(), right());
    const TierUse& host = engine_->stats().tiers[TierIndex(Tier::kHost)];
    EXPECT_LE(host.peak, host.budget);
    before = guesses();
  }
}

// On a drive, new extents take turns with old ones.
TEST_F(ZeroEngineGuessTest, StatesOnADriveAreGuessed) {
  ZeroOptions options = InHostMemory();
  options.nvme = {{nvme_.path(), std::nullopt}};
  for (const char* state : {"grad", "exp_avg", "exp_avg_sq"}) {
    options.home_rules.push_back(
        {.glob = "*", .state = state, .tier = Tier::kNvme});
  }
  const auto step = [&](int) { Gradients(), Step(); };
  const auto read = [&] {
    return engine_->stats()
        .moved[TierIndex(Tier::kNvme)][TierIndex(Tier::kHost)];
  };
  const std::vector<float> guessed = Trained(options, step, 3);
  EXPECT_EQ(right(), 3 * chunks());
  EXPECT_GT(engine_->stats().home_bytes[TierIndex(Tier::kNvme)], Bytes(0));
  // A gradient that an update takes on its way to the drive need not come back.
  const Bytes with = read();
  options.guess_updates = false;
  EXPECT_EQ(guessed, Trained(options, step, 3));
  EXPECT_LE(with, read() - 3 * KiB(8));
}

// Host memory is full of parameters: their new values are on the drive until
// the step.
TEST_F(ZeroEngineGuessTest, BesideFullHostMemoryNewStatesAreOnTheDrive) {
  params_ = 320;  // so much more than staging
  ZeroOptions options = InHostMemory();
  options.host_budget = KiB(4 * 320) + 20 * KiB(8);
  options.nvme = {{nvme_.path(), std::nullopt}};
  for (const char* state : {"grad", "exp_avg", "exp_avg_sq"}) {
    options.home_rules.push_back(
        {.glob = "*", .state = state, .tier = Tier::kNvme});
  }
  options.home_rules.push_back(
      {.glob = "*", .state = "param", .tier = Tier::kHost});
  const auto step = [&](int) { Gradients(), Step(); };
  const auto to_drive = [&] {
    return engine_->stats()
        .moved[TierIndex(Tier::kHost)][TierIndex(Tier::kNvme)];
  };
  options.guess_updates = false;
  const std::vector<float> want = Trained(options, step, 3);
  const Bytes without = to_drive();
  EXPECT_EQ(engine_->stats().tiers[TierIndex(Tier::kHost)].in_use,
            options.host_budget);
  options.guess_updates = true;
  EXPECT_EQ(want, Trained(options, step, 3));
  // A drive that falls behind moves no more for guesses.
  EXPECT_GE(guesses(), 3);
  EXPECT_EQ(right(), guesses());
  EXPECT_EQ(to_drive(), without + guesses() * KiB(8));
  const TierUse& host = engine_->stats().tiers[TierIndex(Tier::kHost)];
  EXPECT_LE(host.peak, host.budget);
  // A guess that is wrong leaves the homes as they were.
  options.clip_norm = 1e-3;
  const std::vector<float> clipped = Trained(options, step, 3);
  EXPECT_GT(guesses(), 0);
  EXPECT_EQ(right(), 0);
  options.guess_updates = false;
  EXPECT_EQ(clipped, Trained(options, step, 3));
}

// Old bytes and new ones are in one place for some states and in two for
// others.
TEST_F(ZeroEngineGuessTest, StatesMayLieOnAnyTiers) {
  int combination = 0;
  int64_t right = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MakeToyModel(4, 12, 2000, dtype);
    ToyRun run;
    run.steps = 3;
    run.guesses = true;
    for (int homes = 0; homes < 81; ++homes) {
      if (combination++ % TestStride() != 0) continue;
      ZeroOptions options = InHostMemory();
      options.device_budget = MiB(1);
      options.nvme = {{nvme_.path(), std::nullopt}};
      int rest = homes;
      for (const char* state : {"param", "exp_avg", "exp_avg_sq", "grad"}) {
        options.home_rules.push_back(
            {.glob = "*", .state = state, .tier = static_cast<Tier>(rest % 3)});
        rest /= 3;
      }
      SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " " << homes);
      const ToyResult got = TrainToy(model, run, 1, options);
      ExpectEqual(got, TrainToyReference(model, run, 1, options));
      if (testing::Test::HasFailure()) return;
      right += got.stats.right_guesses;
    }
  }
  EXPECT_GT(right, combination / TestStride());
}

// One rank guesses and the other does not.
TEST_F(ZeroEngineGuessTest, RanksNeedNotGuessAlike) {
  for (const int stage : {1, 2, 3}) {
    ToyPart part;
    part.model = MakeToyModel(4, 12, 2000, DType::kF32);
    part.run.steps = 4;
    part.options = InHostMemory();
    part.options.stage = stage;
    part.options.device_budget = KiB(100);
    std::vector<ToyPart> parts(2, part);
    parts[0].run.guesses = true;
    const std::vector<ToyResult> got = TrainToyParts(parts);
    ASSERT_THAT(got[0].status, IsOk());
    parts[0].run.guesses = false;
    const std::vector<ToyResult> want = TrainToyParts(parts);
    ASSERT_THAT(want[0].status, IsOk());
    EXPECT_EQ(got[0].weights, want[0].weights) << stage;
    EXPECT_GT(got[0].stats.right_guesses, 0) << stage;
    EXPECT_EQ(got[1].stats.guesses, 0);
  }
}

}  // namespace
}  // namespace castor
