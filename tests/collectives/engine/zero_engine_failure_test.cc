// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Drives and ranks that fail: every rank learns it in time, nobody hangs.

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/zero_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::HasSubstr;

// What a run leaves of its files, by path.
std::vector<std::filesystem::path> FilesUnder(
    const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file() && entry.file_size() > 4096) {
      files.push_back(entry.path());
    }
  }
  return files;
}

TEST_F(ZeroEngineTest, ACorruptedDriveEndsBothRanksWithAnErrorAndNoHang) {
  const ToyModel model = MakeToyModel(11, 30, 2000, DType::kF32);
  ToyRun run;
  run.steps = 6;
  run.after_step = [&](ZeroEngine&, int step) {
    if (step != 2) return;
    // One of the two ranks' files is overwritten behind the engine's back.
    const std::vector<std::filesystem::path> files = FilesUnder(nvme_.path());
    ASSERT_FALSE(files.empty());
    std::ofstream file(files[0], std::ios::in | std::ios::binary);
    const std::string garbage(std::filesystem::file_size(files[0]), '!');
    file.write(garbage.data(), static_cast<std::streamsize>(garbage.size()));
  };
  const ToyResult got = TrainToy(model, run, 2, Tight(3, KiB(48), KiB(120)));
  EXPECT_THAT(got.status,
              StatusIs(ErrorCode::kDataLoss, HasSubstr("of chunk")));
  EXPECT_TRUE(FilesUnder(nvme_.path()).empty()) << "files are removed even so";
}

TEST_F(ZeroEngineTest, ATruncatedFileEndsTheRunWithAnErrorAndNoHang) {
  const ToyModel model = MakeToyModel(12, 30, 2000, DType::kF32);
  ToyRun run;
  run.steps = 6;
  run.after_step = [&](ZeroEngine&, int step) {
    if (step != 2) return;
    for (const std::filesystem::path& file : FilesUnder(nvme_.path())) {
      std::filesystem::resize_file(file, 0);
    }
  };
  const ToyResult got = TrainToy(model, run, 1, Tight(3, KiB(48), KiB(120)));
  EXPECT_FALSE(got.status.ok());
  EXPECT_THAT(std::string(got.status.message()), HasSubstr("of chunk"));
}

TEST_F(ZeroEngineTest, TwoRunsOnOneDirectoryDoNotTouchEachOther) {
  const ToyModel model = MakeToyModel(13, 30, 2000, DType::kF32);
  ToyRun run;
  const ToyResult alone = TrainToy(model, run, 2, Roomy(0));
  std::vector<ToyResult> results(2);
  std::vector<std::thread> threads;
  for (ToyResult& result : results) {
    threads.emplace_back(
        [&] { result = TrainToy(model, run, 2, Tight(3, KiB(48), KiB(120))); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const ToyResult& result : results) {
    ASSERT_THAT(result.status, IsOk());
    EXPECT_EQ(result.digest, alone.digest);
  }
  EXPECT_TRUE(FilesUnder(nvme_.path()).empty());
}

TEST_F(ZeroEngineTest, RanksThatRegisterDifferentModelsLearnSo) {
  InProcessOptions in_process;
  in_process.world = 2;
  in_process.executor = &pool_;
  std::vector<std::unique_ptr<Communicator>> world =
      MakeInProcessWorld(in_process);
  std::vector<Status> statuses(2);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const ToyModel model =
          MakeToyModel(10, 6, r == 0 ? 900 : 901, DType::kF32);
      statuses[r] =
          TrainToyRank(model, ToyRun(), Roomy(3), world[r].get()).status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(statuses[0], StatusIs(ErrorCode::kInvalidArgument,
                                    HasSubstr("different parameters")));
  EXPECT_THAT(statuses[1], StatusIs(ErrorCode::kInvalidArgument,
                                    HasSubstr("different parameters")));
}

// Trains two ranks that are told different things. Returns their failures, and
// fails itself where one hung until the communicator's patience ended.
std::vector<Status> FailTogether(const ToyPart& first, const ToyPart& second) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Status> statuses;
  for (const ToyResult& result : TrainToyParts({first, second})) {
    statuses.push_back(result.status);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  return statuses;
}

// Rank 0 comes to Seal and rank 1 never does.
TEST_F(ZeroEngineTest, SealDoesNotWaitForARankThatGaveUpBefore) {
  const auto seal_beside = [this](const auto& give_up) {
    InProcessOptions in_process;
    in_process.world = 2;
    in_process.executor = &pool_;
    std::vector<std::unique_ptr<Communicator>> world =
        MakeInProcessWorld(in_process);
    std::unique_ptr<ZeroEngine> engines[2];
    for (size_t r = 0; r < 2; ++r) {
      engines[r] = *ZeroEngine::Create(Roomy(3), world[r].get());
      EXPECT_THAT(engines[r]->Register({"w", {64}, DType::kF32, true}, nullptr),
                  IsOk());
    }
    Status sealed;
    std::thread first([&] { sealed = engines[0]->Seal({}); });
    const auto begin = std::chrono::steady_clock::now();
    give_up(&engines[1]);
    first.join();
    EXPECT_LT(std::chrono::steady_clock::now() - begin,
              std::chrono::seconds(30));
    return sealed;
  };
  EXPECT_THAT(seal_beside([](auto* engine) { engine->reset(); }),
              StatusIs(ErrorCode::kAborted,
                       HasSubstr("rank 1 left without closing its engine")));
  EXPECT_THAT(seal_beside([](auto* engine) {
                EXPECT_THAT((*engine)->Register({"v", {64}, DType::kF32, true},
                                                nullptr, "no such group"),
                            StatusIs(ErrorCode::kInvalidArgument));
              }),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("rank 1")));
}

TEST_F(ZeroEngineTest, ARankWithoutItsDriveFailsSealOnEveryRank) {
  ToyPart good = {MakeToyModel(16, 30, 2000, DType::kF32), ToyRun(),
                  Tight(3, KiB(48), KiB(120))};
  bool trained = false;
  good.run.fails = [&](const ToyMoment&) { return trained = true; };
  ToyPart bad = good;
  bad.options.nvme[0].directory = nvme_.path() / "missing";
  for (const Status& status : FailTogether(good, bad)) {
    EXPECT_THAT(status,
                StatusIs(ErrorCode::kUnavailable, HasSubstr("missing")));
  }
  EXPECT_FALSE(trained) << "no rank begins unless all can";
  EXPECT_TRUE(FilesUnder(nvme_.path()).empty());
}

TEST_F(ZeroEngineTest, RanksThatChoseDifferentOptionsLearnSo) {
  const ToyPart one = {MakeToyModel(17, 6, 900, DType::kF32), ToyRun(),
                       Roomy(1)};
  const std::pair<std::string, std::function<void(ToyPart&)>> changes[] = {
      {"clip_norm", [](ToyPart& p) { p.options.clip_norm = 2; }},
      {"stage", [](ToyPart& p) { p.options.stage = 2; }},
      {"optimizer.weight_decay",
       [](ToyPart& p) { p.options.optimizer.weight_decay = 0.5; }},
      {"chunk.bytes", [](ToyPart& p) { p.options.chunk_size = KiB(16); }},
      {"prefetch", [](ToyPart& p) { p.options.prefetch.depth = 1; }},
      {"what is declared at Seal()",
       [](ToyPart& p) { p.run.declares = false; }},
      {"chunk.align_elements",
       [](ToyPart& p) { p.options.align = Elements(128); }},
      {"optimizer.kind",
       [](ToyPart& p) { p.options.optimizer.kind = OptimizerKind::kAdam; }},
      {"optimizer.seed", [](ToyPart& p) { p.options.optimizer.seed = 1; }},
      {"groups",
       [](ToyPart& p) { p.options.groups = {{.name = "norms", .lr = 1e-4}}; }},
      {"home_rules",
       [](ToyPart& p) {
         p.options.home_rules.push_back({.glob = "p*", .tier = Tier::kHost});
       }},
      {"machine", [](ToyPart& p) { p.options.machine.emplace(); }},
      {"values_piece", [](ToyPart& p) { p.options.values_piece = KiB(4); }},
      {"stage, clip_norm", [](ToyPart& p) {
         p.options.stage = 3;
         p.options.clip_norm = 3;
       }}};
  for (const auto& [name, change] : changes) {
    ToyPart other = one;
    change(other);
    for (const Status& status : FailTogether(one, other)) {
      EXPECT_THAT(status, StatusIs(ErrorCode::kInvalidArgument,
                                   HasSubstr("different options: " + name +
                                             ". Every rank")));
    }
  }
  ToyPart richer = one;
  richer.options.device_budget = MiB(9);
  for (const Status& status : FailTogether(one, richer)) {
    EXPECT_THAT(status, IsOk()) << "budgets may differ";
  }
}

TEST_F(ZeroEngineTest, RanksThatMakeDifferentStepsLearnSo) {
  // Stage 0 has no shards to disagree about: weights would drift apart unseen.
  ToyPart one = {MakeToyModel(18, 6, 900, DType::kF32), ToyRun(), Roomy(0)};
  ToyPart other = one;
  other.run.lr = 0.0500001;
  for (const Status& status : FailTogether(one, other)) {
    EXPECT_THAT(status, StatusIs(ErrorCode::kFailedPrecondition,
                                 HasSubstr("learning rate")));
  }
}

TEST_F(ZeroEngineTest, ARankThatGivesUpAtAnyMomentEndsTheOther) {
  const ToyModel model = MakeToyModel(19, 6, 1500, DType::kF32);
  ToyRun run;
  run.steps = 2;
  run.left_open = 0.3;
  std::vector<ToyMoment> moments;
  ToyRun listing = run;
  listing.fails = [&](const ToyMoment& at) {
    moments.push_back(at);
    return false;
  };
  ASSERT_THAT(TrainToy(model, listing, 1, Roomy(3)).status, IsOk());
  for (int lanes : {0, 2}) {
    for (const ToyMoment& moment : moments) {
      SCOPED_TRACE(testing::Message()
                   << "lanes " << lanes << " step " << moment.step << " point "
                   << static_cast<int>(moment.point) << " parameter "
                   << moment.param);
      run.worker_lanes = lanes;
      ToyPart good = {model, run, Tight(3, KiB(96), KiB(80))};
      ToyPart bad = good;
      bad.run.fails = [&](const ToyMoment& at) {
        return at.step == moment.step && at.point == moment.point &&
               at.param == moment.param;
      };
      const std::vector<Status> statuses = FailTogether(good, bad);
      EXPECT_THAT(statuses[0],
                  StatusIs(ErrorCode::kAborted, HasSubstr("rank 1")));
      EXPECT_THAT(statuses[1],
                  StatusIs(ErrorCode::kUnavailable, HasSubstr("gave up")));
    }
  }
}

TEST_F(ZeroEngineTest, AReadThatFailsBetweenStepsEndsTheOtherRankToo) {
  ToyPart part = {MakeToyModel(20, 30, 2000, DType::kBF16), ToyRun(),
                  Tight(3, KiB(48), KiB(120))};
  part.options.prefetch.depth = 0;
  TempDir own;
  ToyPart with_bad_drive = part;
  part.options.nvme[0].directory = own.path();
  with_bad_drive.run.after_step = nullptr;
  // Called on rank 0 only: what it spoils is the drive of rank 1.
  part.run.after_step = [&](ZeroEngine&, int step) {
    if (step != 2) return;
    for (const std::filesystem::path& file : FilesUnder(nvme_.path())) {
      std::ofstream(file, std::ios::in | std::ios::binary)
          << std::string(std::filesystem::file_size(file), '!');
    }
  };
  const std::vector<Status> statuses = FailTogether(part, with_bad_drive);
  EXPECT_THAT(statuses[0],
              StatusIs(ErrorCode::kDataLoss, HasSubstr("rank 1: ")));
  EXPECT_THAT(statuses[1],
              StatusIs(ErrorCode::kDataLoss, HasSubstr("of chunk")));
}

}  // namespace
}  // namespace castor
