// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Engines that save what they trained and go on elsewhere. Guards against B15
// (checkpoints with offload hang or run out of memory, and load on one number
// of ranks only) and against the ancestor's lossy checkpoints, whose masters
// were rounded on the way.

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/text/json_value.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/checkpoint/files/data_file.h"
#include "collectives/loss_scaler.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/kernels/optimizer_options.h"
#include "tests/support/fakes/forgetful_files.h"
#include "tests/support/file_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_rounds.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

auto Refused(const std::string& why) {
  return StatusIs(ErrorCode::kInvalidArgument, HasSubstr(why));
}

// Every file's bytes by name, but for the manifest, which says who saved it.
std::map<std::string, std::string> FilesOf(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == kManifestName) {
      continue;
    }
    files[fs::relative(entry.path(), folder).string()] =
        FileText(entry.path().string());
  }
  return files;
}

struct Setting {
  DType dtype;
  OptimizerOptions optimizer;
};

class ZeroEngineCheckpointTest : public ZeroEngineTest {
 protected:
  // Loads what `from` holds, saves it again to `to`, and goes on.
  ToyResult LoadAndSave(const ToyModel& model, ToyRun run, int world,
                        const ZeroOptions& options, const std::string& from,
                        const std::string& to) {
    run.after_seal = [from, to](ZeroEngine& engine) -> Status {
      CASTOR_ASSIGN_OR_RETURN(const LoadResult loaded,
                              engine.Load({.directory = from}));
      if (loaded.trainer != "place in the data") return Internal("no blob");
      CASTOR_ASSIGN_OR_RETURN(
          const SaveResult saved,
          engine.Save({.directory = to, .trainer = loaded.trainer}));
      return saved.step == loaded.step ? OkStatus() : Internal("other step");
    };
    return TrainToy(model, run, world, options);
  }

  TempDir dir_;
};

// Training undisturbed, and training that is saved on 4 ranks after half of its
// steps and carried over 3, 1 and 8 ranks, each in another stage, with other
// chunks and homes, back to 4: the same bits, files and weights alike.
TEST_F(ZeroEngineCheckpointTest, ReshardsToAnyRanksStageChunksAndHomes) {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  adam.moment_dtype = DType::kBF16;
  adam.seed = 7;
  OptimizerOptions sgd = DefaultOptimizerOptions(OptimizerKind::kSgd);
  sgd.momentum = 0.9;
  OptimizerOptions blocks;
  blocks.moment_dtype = DType::kBlocks8;
  const Setting settings[] = {{DType::kBF16, OptimizerOptions()},
                              {DType::kF32, adam},
                              {DType::kF32, sgd},
                              {DType::kBF16, blocks}};
  int number = 0;
  for (const Setting& setting : settings) {
    // The same code, where a sanitizer watches.
    if (TestStride() > 1 && number > 0) break;
    SCOPED_TRACE(testing::Message() << "setting " << number);
    const ToyModel model = MakeToyModel(51 + static_cast<uint64_t>(number), 14,
                                        6000, setting.dtype);
    const auto with = [&](ZeroOptions options, Bytes chunk) {
      options.optimizer = setting.optimizer;
      options.chunk_size = chunk;
      options.clip_norm = 0.5;
      return options;
    };
    const std::string root = dir_.File(fmt::format("setting-{}", number++));
    fs::create_directory(root);
    const auto at = [&](int world) {
      return fmt::format("{}/from-{}", root, world);
    };
    ToyRun run;
    run.steps = 4;
    run.unused = {3};
    run.between_steps = [&](ZeroEngine& engine, int step) {
      if (step != 1) return OkStatus();
      return engine.Save({.directory = at(4), .trainer = "place in the data"})
          .status();
    };
    const ToyResult want =
        TrainToy(model, run, 4, with(Tight(3, KiB(320), KiB(192)), KiB(8)));
    ASSERT_THAT(want.status, IsOk());

    ToyRun rest = run;
    rest.first_step = 2;
    rest.between_steps = nullptr;
    ToyRun none = rest;
    none.steps = 2;
    std::string from = at(4);
    const std::string name = CheckpointName(2);
    const auto files = FilesOf(from + "/" + name);
    ASSERT_FALSE(files.empty());
    const fs::path states = fs::path(from) / name / "optimizer";
    const bool sgd_saves = setting.optimizer.kind == OptimizerKind::kSgd;
    EXPECT_EQ(fs::exists(states / "momentum_buffer.safetensors"), sgd_saves);
    EXPECT_EQ(fs::exists(states / "exp_avg.safetensors"), !sgd_saves);
    const struct {
      int world;
      ZeroOptions options;
    } stops[] = {{3, with(Roomy(1), KiB(16))},
                 {1, with(Roomy(0), KiB(12))},
                 {8, with(Tight(3, KiB(320), KiB(96)), KiB(8))},
                 {2, with(Roomy(2), KiB(32))}};
    for (const auto& stop : stops) {
      SCOPED_TRACE(testing::Message() << stop.world << " ranks");
      const ToyResult passed = LoadAndSave(model, none, stop.world,
                                           stop.options, from, at(stop.world));
      ASSERT_THAT(passed.status, IsOk());
      from = at(stop.world);
      ASSERT_EQ(FilesOf(from + "/" + name), files);
    }
    ToyResult got = LoadAndSave(model, rest, 4, with(Roomy(2), KiB(24)), from,
                                root + "/again");
    ASSERT_THAT(got.status, IsOk());
    EXPECT_EQ(got.digest, want.digest);
    EXPECT_EQ(got.weights, want.weights);
    ASSERT_EQ(got.norms.size(), 2u);
    EXPECT_EQ(got.norms[0], want.norms[2]);
    EXPECT_EQ(got.norms[1], want.norms[3]);
  }
}

// Saved beside the next step, a checkpoint holds what it would have held had
// training waited: updates come after it, wherever the states are at home.
TEST_F(ZeroEngineCheckpointTest, SavesBesideTheNextStep) {
  const ToyModel model = MakeToyModel(91, 14, 3000, DType::kBF16);
  int number = 0;
  for (const ZeroOptions& options :
       {Tight(3, KiB(160), KiB(96)), Roomy(3), Roomy(1)}) {
    std::map<std::string, std::string> files[2];
    ToyResult results[2];
    for (const bool wait : {true, false}) {
      const std::string root = dir_.File(fmt::format("{}-{}", number, wait));
      ToyRun run;
      run.steps = 4;
      run.between_steps = [&](ZeroEngine& engine, int step) -> Status {
        if (step == 2) {
          // The step has waited for it.
          if (!wait) CASTOR_RETURN_IF_ERROR(engine.FinishSave().status());
          return OkStatus();
        }
        return engine.Save({.directory = root, .wait = wait}).status();
      };
      results[wait] = TrainToy(model, run, 2, options);
      ASSERT_THAT(results[wait].status, IsOk());
      files[wait] = FilesOf(root);
      EXPECT_EQ(ListCheckpoints(root)->size(), 2u);
    }
    EXPECT_EQ(files[0], files[1]);
    ExpectEqual(results[0], results[1]);
    ++number;
  }
}

// A damaged checkpoint, or options that differ, are told to every rank alike,
// and nothing of the engines changes.
TEST_F(ZeroEngineCheckpointTest, RanksFailAlikeAndTrainOn) {
  const ToyModel model = MakeToyModel(77, 8, 1000, DType::kBF16);
  ToyRun run;
  const ToyResult want = TrainToy(model, run, 3, Roomy(3));
  ASSERT_THAT(want.status, IsOk());
  run.between_steps = [&](ZeroEngine& engine, int step) -> Status {
    const std::string own = dir_.File(fmt::format("of-{}", engine.rank()));
    const std::string shared = dir_.File("shared");
    EXPECT_THAT(engine.Save({.directory = own}),
                Refused("the same on every rank"));
    EXPECT_THAT(engine.Save({.directory = dir_.File("no/such/folder")}),
                StatusIs(ErrorCode::kIoError, HasSubstr("rank 0: ")));
    EXPECT_THAT(engine.Load({.directory = own}), Refused("rank 0: "));
    CASTOR_RETURN_IF_ERROR(
        engine.Save({.directory = shared, .max_file = KiB(4), .keep = 1})
            .status());
    EXPECT_THAT(engine.Load({.directory = shared, .step = 99}),
                Refused("no checkpoint of step 99"));
    // All ranks are past this before the next save changes the folder.
    if (step == 1) {
      EXPECT_THAT(engine.Load({.directory = shared}), IsOk());
    }
    return OkStatus();
  };
  ExpectEqual(TrainToy(model, run, 3, Roomy(3)), want);
  EXPECT_EQ(ListCheckpoints(dir_.File("shared"))->size(), 1u);
  EXPECT_TRUE(fs::exists(dir_.File("shared") + "/" + CheckpointName(2) +
                         "/model.safetensors.index.json"));
}

// What Save returned is on the drive, whatever every rank wrote of it.
TEST_F(ZeroEngineCheckpointTest, WhatRanksSavedSurvivesAPowerCut) {
  const ToyModel model = MakeToyModel(33, 8, 1000, DType::kBF16);
  for (const bool wait : {true, false}) {
    const TempDir dir;
    const TempDir after;
    ForgetfulFiles files(dir.path());
    const ScopedDataFileCalls calls(files.Calls());
    ToyRun run;
    run.steps = 2;
    run.between_steps = [&](ZeroEngine& engine, int) -> Status {
      CASTOR_RETURN_IF_ERROR(
          engine.Save({.directory = dir.File("run"), .wait = wait}).status());
      return wait ? OkStatus() : engine.FinishSave().status();
    };
    ASSERT_THAT(TrainToy(model, run, 2, Roomy(3)).status, IsOk());
    files.Recover(after.File("left"));
    ToyRun rest;
    rest.steps = 1;
    rest.after_seal = [&](ZeroEngine& engine) {
      return engine.Load({.directory = after.File("left/run")}).status();
    };
    EXPECT_THAT(TrainToy(model, rest, 2, Roomy(3)).status, IsOk());
  }
}

// The rank whose write or sync failed tells the others, and nothing is saved.
TEST_F(ZeroEngineCheckpointTest, AFailedWriteOrSyncFailsTheSaveOnEveryRank) {
  const ToyModel model = MakeToyModel(33, 8, 1000, DType::kBF16);
  for (const bool fails_write : {true, false}) {
    for (const bool wait : {true, false}) {
      const std::string root =
          dir_.File(fmt::format("{}-{}", fails_write, wait));
      // Past what rank 0 alone does before the ranks write.
      std::atomic<int> calls = 0;
      const auto fails = [&](int nth) {
        errno = EIO;
        return ++calls == nth;
      };
      DataFileCalls failing;
      if (fails_write) {
        failing.pwrite = [&](int fd, const void* from, size_t bytes,
                             off_t offset) {
          return fails(20) ? -1 : ::pwrite(fd, from, bytes, offset);
        };
      } else {
        failing.fsync = [&](int fd) { return fails(4) ? -1 : ::fsync(fd); };
      }
      const ScopedDataFileCalls scoped(failing);
      ToyRun run;
      run.steps = 2;
      run.between_steps = [&](ZeroEngine& engine, int) -> Status {
        Status saved = engine.Save({.directory = root, .wait = wait}).status();
        if (!wait && saved.ok()) saved = engine.FinishSave().status();
        EXPECT_THAT(saved,
                    StatusIs(ErrorCode::kIoError, HasSubstr("could not be")))
            << "rank " << engine.rank();
        return OkStatus();
      };
      ASSERT_THAT(TrainToy(model, run, 2, Roomy(3)).status, IsOk());
      EXPECT_THAT(*ListCheckpoints(root), testing::IsEmpty());
    }
  }
}

// Each rank reads a part of the tensors; wherever the damage is, all refuse,
// and a drive that cannot be read is no damage.
TEST_F(ZeroEngineCheckpointTest, RanksVerifyWhatTheyLoadTogether) {
  const ToyModel model = MakeToyModel(33, 8, 1000, DType::kBF16);
  for (const int world : {2, 3}) {
    const std::string root = dir_.File(fmt::format("{}", world));
    ToyRun run;
    run.steps = 2;
    run.between_steps = [&](ZeroEngine& engine, int) {
      return engine.Save({.directory = root}).status();
    };
    ASSERT_THAT(TrainToy(model, run, world, Roomy(3)).status, IsOk());
    const std::string file =
        root + "/" + CheckpointName(1) + "/optimizer/exp_avg.safetensors";
    const std::string sound = FileText(file);
    ToyRun rest;
    rest.steps = 1;
    const auto expect = [&](ErrorCode code) {
      rest.after_seal = [&root, code](ZeroEngine& engine) -> Status {
        CASTOR_ASSIGN_OR_RETURN(const uint64_t before, engine.WeightDigest());
        EXPECT_THAT(engine.Load({.directory = root}), StatusIs(code))
            << "rank " << engine.rank();
        EXPECT_THAT(engine.WeightDigest(), IsOkAndHolds(before));
        return OkStatus();
      };
      EXPECT_THAT(TrainToy(model, rest, world, Roomy(3)).status, IsOk());
    };
    const size_t data = sound.find("}}") + 16;
    for (const size_t at :
         {data, (data + sound.size()) / 2, sound.size() - 1}) {
      SCOPED_TRACE(testing::Message() << world << " ranks, byte " << at);
      std::string damaged = sound;
      damaged[at] ^= 1;
      std::ofstream(file, std::ios::binary) << damaged;
      expect(ErrorCode::kDataLoss);
    }
    std::ofstream(file, std::ios::binary) << sound;
    rest.after_seal = [&](ZeroEngine& engine) {
      return engine.Load({.directory = root}).status();
    };
    ASSERT_THAT(TrainToy(model, rest, world, Roomy(3)).status, IsOk());
    // Reads of much are of tensors.
    std::atomic<int> reads = 0;
    const ScopedDataFileCalls calls(
        {.pread = [&](int fd, void* to, size_t bytes, off_t offset) -> ssize_t {
          if (offset == 0 || ++reads != 10) {
            return ::pread(fd, to, bytes, offset);
          }
          errno = EIO;
          return -1;
        }});
    expect(ErrorCode::kIoError);
  }
}

class OneRankCheckpointTest : public OneRankEngineTest {
 protected:
  void Train() {
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    Backward({0, 1, 2});
    ASSERT_THAT(engine_->Step(0.1), IsOk());
  }
  // A new engine of other parameters or options.
  void Reopen(const ZeroOptions& options, const std::vector<ParamSpec>& specs) {
    if (engine_ != nullptr) {
      ASSERT_THAT(engine_->Close(), IsOk());
    }
    Result<std::unique_ptr<ZeroEngine>> made =
        ZeroEngine::Create(options, world_[0].get());
    ASSERT_THAT(made, IsOk());
    engine_ = *std::move(made);
    ids_.clear();
    for (const ParamSpec& spec : specs) {
      Result<ParamId> id = engine_->Register(spec, nullptr);
      ASSERT_THAT(id, IsOk());
      ids_.push_back(*id);
    }
    ASSERT_THAT(engine_->Seal({}), IsOk());
  }
  // A checkpoint of step 1 of three parameters, in dir_.
  void Save() {
    Open(Roomy(3), 3);
    ASSERT_THAT(engine_->Seal({}), IsOk());
    Train();
    ASSERT_THAT(engine_->Save({.directory = Dir()}), IsOk());
  }
  std::string Dir() const { return dir_.File("run"); }
  std::string Saved() const { return Dir() + "/" + CheckpointName(1); }
  static std::vector<ParamSpec> Specs() {
    return {{"p0", {1024}, DType::kF32, true},
            {"p1", {1024}, DType::kF32, true},
            {"p2", {1024}, DType::kF32, true}};
  }
  void ExpectRefused(const std::vector<ParamSpec>& specs,
                     const ZeroOptions& options, const std::string& why) {
    Reopen(options, specs);
    const uint64_t before = *engine_->WeightDigest();
    EXPECT_THAT(engine_->Load({.directory = Dir()}), Refused(why));
    EXPECT_EQ(*engine_->WeightDigest(), before);
  }

  TempDir dir_;
};

TEST_F(OneRankCheckpointTest, RefusesAnotherModelByName) {
  Save();
  std::vector<ParamSpec> specs = Specs();
  specs[1].name = "other";
  ExpectRefused(specs, Roomy(3), "parameter \"other\" is not in the");
  specs = Specs();
  specs[2].shape = {32, 32};
  ExpectRefused(specs, Roomy(3), "\"p2\" has shape [1024]");
  specs = Specs();
  specs.pop_back();
  ExpectRefused(specs, Roomy(3), "checkpoint's parameter \"p2\"");
  specs = Specs();
  specs[0].dtype = DType::kBF16;
  ExpectRefused(specs, Roomy(3), "\"p0\" is F32 in the checkpoint and BF16");
  ZeroOptions lion = Roomy(3);
  lion.optimizer = DefaultOptimizerOptions(OptimizerKind::kLion);
  ExpectRefused(Specs(), lion, "trained with \"adamw\"");
  // Weights alone serve any optimizer.
  const Result<LoadResult> loaded =
      engine_->Load({.directory = Dir(), .optimizer_states = false});
  EXPECT_THAT(loaded, IsOk());
}

// As any safetensors file is, whoever wrote it.
TEST_F(OneRankCheckpointTest, WeightsAloneBeginATraining) {
  Save();
  const std::string weights = Saved() + "/model.safetensors";
  const uint64_t saved = *engine_->WeightDigest();
  Reopen(Roomy(3), Specs());
  EXPECT_THAT(engine_->Load({.directory = weights}),
              Refused("holds weights alone"));
  ASSERT_NE(*engine_->WeightDigest(), saved);
  const Result<LoadResult> loaded =
      engine_->Load({.directory = weights, .optimizer_states = false});
  ASSERT_THAT(loaded, IsOk());
  EXPECT_EQ(loaded->step, 0);
  EXPECT_EQ(loaded->path, weights);
  EXPECT_EQ(*engine_->WeightDigest(), saved);
  Train();  // as the first step of another training
  ASSERT_THAT(engine_->Save({.directory = dir_.File("next")}), IsOk());
  EXPECT_TRUE(fs::exists(dir_.File("next") + "/" + CheckpointName(1)));
  // Names that are nearly right are named.
  std::vector<ParamSpec> specs = Specs();
  specs[1].name = "q1";
  Reopen(Roomy(3), specs);
  const uint64_t before = *engine_->WeightDigest();
  EXPECT_THAT(engine_->Load({.directory = weights, .optimizer_states = false}),
              Refused("\"q1\" is not in the checkpoint, which has 3"));
  EXPECT_EQ(*engine_->WeightDigest(), before);
}

TEST_F(OneRankCheckpointTest, ConvertsTypesWhereAsked) {
  Save();
  std::vector<float> want(1024);
  ASSERT_THAT(engine_->ReadParam(ids_[1], want), IsOk());
  std::vector<ParamSpec> specs = Specs();
  specs[1].dtype = DType::kBF16;
  Reopen(Roomy(3), specs);
  ASSERT_THAT(engine_->Load({.directory = Dir(), .convert = true}), IsOk());
  std::vector<float> got(1024);
  // Its master is what the weights were, to the last bit.
  ASSERT_THAT(engine_->ReadParam(ids_[1], got), IsOk());
  EXPECT_EQ(got, want);
  // And back: from the master, not from the rounded weights.
  ASSERT_THAT(engine_->Save({.directory = dir_.File("bf16")}), IsOk());
  Reopen(Roomy(3), Specs());
  ASSERT_THAT(engine_->Load({.directory = dir_.File("bf16"), .convert = true}),
              IsOk());
  ASSERT_THAT(engine_->ReadParam(ids_[1], got), IsOk());
  EXPECT_EQ(got, want);
}

TEST_F(OneRankCheckpointTest, NamesWhatIsDamagedAndChangesNothing) {
  Save();
  Train();  // the engine is elsewhere now
  const uint64_t before = *engine_->WeightDigest();
  const std::string file = Saved() + "/optimizer/exp_avg_sq.safetensors";
  const std::string sound = FileText(file);
  const auto write = [&](const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  };
  const auto expect = [&](ErrorCode code, const std::string& what) {
    EXPECT_THAT(engine_->Load({.directory = Dir()}),
                StatusIs(code, HasSubstr(what)));
    EXPECT_EQ(*engine_->WeightDigest(), before);
  };
  std::string bytes = sound;
  bytes[bytes.size() - 3000] ^= 1;  // of the last tensor
  write(file, bytes);
  expect(ErrorCode::kDataLoss, "tensor \"p2.exp_avg_sq\"");
  write(file, sound.substr(0, sound.size() - 1));
  expect(ErrorCode::kMalformed, "exp_avg_sq.safetensors");
  fs::remove(file);
  expect(ErrorCode::kMalformed, "is missing");
  write(file, sound);
  const std::string manifest = Saved() + "/" + kManifestName;
  std::string text = FileText(manifest);
  const std::string good = text;
  text.replace(text.find("checkpoint/2"), 12, "checkpoint/3");
  write(manifest, text);
  expect(ErrorCode::kMalformed, "another version of Castor");
  write(manifest, good.substr(0, good.size() / 2));
  expect(ErrorCode::kMalformed, kManifestName);
  write(manifest, good);
  ASSERT_THAT(engine_->Load({.directory = Dir()}), IsOk());
  EXPECT_NE(*engine_->WeightDigest(), before);
}

TEST_F(OneRankCheckpointTest, SavesWhatTheLastStepMadeAndWhileParked) {
  Save();
  const auto before = FilesOf(Saved());
  EXPECT_THAT(engine_->BeginMicroBatch(true), IsOk());
  EXPECT_THAT(engine_->Save({.directory = Dir()}), IsOk());
  EXPECT_EQ(FilesOf(Saved()), before);
  ASSERT_THAT(engine_->UpdateEarly(0.1), IsOk());
  EXPECT_THAT(engine_->Save({.directory = Dir()}),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("half done")));
  EXPECT_THAT(engine_->Load({.directory = Dir()}),
              StatusIs(ErrorCode::kFailedPrecondition));
  ASSERT_THAT(engine_->Abandon(), IsOk());
  const auto files = FilesOf(Saved());
  ASSERT_THAT(engine_->Park(Tier::kHost), IsOk());
  // In place of the one that is there.
  ASSERT_THAT(engine_->Save({.directory = Dir()}), IsOk());
  EXPECT_EQ(FilesOf(Saved()), files);
  EXPECT_THAT(engine_->Load({.directory = Dir()}),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("parked")));
  ASSERT_THAT(engine_->Resume(), IsOk());
  EXPECT_THAT(engine_->FinishSave(),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("no save")));
  ASSERT_THAT(engine_->Save({.directory = dir_.File("b"), .wait = false}),
              IsOk());
  EXPECT_THAT(engine_->Close(),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("under way")));
  ASSERT_THAT(engine_->FinishSave(), IsOk());
  EXPECT_EQ(FilesOf(dir_.File("b") + "/" + CheckpointName(1)), files);
  // One that nobody finished leaves nothing.
  ASSERT_THAT(engine_->Save({.directory = dir_.File("c"), .wait = false}),
              IsOk());
  engine_.reset();
  EXPECT_THAT(*ListCheckpoints(dir_.File("c")), testing::IsEmpty());
}

TEST_F(OneRankCheckpointTest, KeepsTheLossScale) {
  ZeroOptions scaled = Roomy(3);
  scaled.loss_scaling.kind = LossScalingKind::kDynamic;
  Reopen(scaled, Specs());
  const LossScaleState state = {.scale = 4096,
                                .clean_steps = 17,
                                .overflows_left = 1,
                                .skipped_steps = 3};
  ASSERT_THAT(engine_->RestoreLossScale(state), IsOk());
  ASSERT_THAT(engine_->Save({.directory = Dir()}), IsOk());
  Reopen(scaled, Specs());
  ASSERT_NE(engine_->loss_scale_state(), state);
  ASSERT_THAT(engine_->Load({.directory = Dir(), .optimizer_states = false}),
              IsOk());
  ASSERT_NE(engine_->loss_scale_state(), state);
  ASSERT_THAT(engine_->Load({.directory = Dir()}), IsOk());
  EXPECT_EQ(engine_->loss_scale_state(), state);

  scaled.loss_scaling.initial = 512;
  scaled.loss_scaling.most = 1024;
  ExpectRefused(Specs(), scaled, "its loss scale");
}

// Corrections of moments go by the updates of the parameter, not by the steps
// of the training.
TEST_F(OneRankCheckpointTest, KeepsHowOftenEachParameterWasUpdated) {
  Save();
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  Backward({0, 1});
  ASSERT_THAT(engine_->Step(0.1), IsOk());
  ASSERT_THAT(engine_->Save({.directory = Dir()}), IsOk());
  const auto manifest = ParseManifest(
      FileText(Dir() + "/" + CheckpointName(2) + "/" + kManifestName));
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(manifest->params[1].steps, 2);
  EXPECT_EQ(manifest->params[2].steps, 1);
  Train();
  const uint64_t undisturbed = *engine_->WeightDigest();

  Reopen(Roomy(3), Specs());
  ASSERT_THAT(engine_->Load({.directory = Dir()}), IsOk());
  Train();
  EXPECT_EQ(*engine_->WeightDigest(), undisturbed);
}

// Nothing but the checkpoint tells what SetLearningRate said; a rate that
// options name is theirs.
TEST_F(OneRankCheckpointTest, KeepsTheLearningRatesThatGroupsWereGiven) {
  ZeroOptions options = Roomy(3);
  options.groups = {{.name = "norms", .lr = 0.25}, {.name = "rest"}};
  Reopen(options, Specs());
  ASSERT_THAT(engine_->SetLearningRate("", 0.5), IsOk());
  ASSERT_THAT(engine_->SetLearningRate("rest", 0.125), IsOk());
  Train();
  ASSERT_THAT(engine_->Save({.directory = Dir()}), IsOk());
  const auto manifest = ParseManifest(FileText(Saved() + "/" + kManifestName));
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(manifest->engine.at("learning_rate"), JsonValue(0.5));
  EXPECT_EQ(manifest->engine.at("learning_rate.rest"), JsonValue(0.125));
  EXPECT_FALSE(manifest->engine.contains("learning_rate.norms"));
  Train();
  const uint64_t undisturbed = *engine_->WeightDigest();

  Reopen(options, Specs());
  ASSERT_THAT(engine_->Load({.directory = Dir()}), IsOk());
  Train();
  EXPECT_EQ(*engine_->WeightDigest(), undisturbed);
  // A rate that is given after it holds.
  Reopen(options, Specs());
  ASSERT_THAT(engine_->Load({.directory = Dir()}), IsOk());
  ASSERT_THAT(engine_->SetLearningRate("", 0.0625), IsOk());
  Train();
  EXPECT_NE(*engine_->WeightDigest(), undisturbed);
  // Groups that the engine does not have matter to nobody.
  Reopen(Roomy(3), Specs());
  ASSERT_THAT(engine_->Load({.directory = Dir()}), IsOk());
  Train();
  EXPECT_EQ(*engine_->WeightDigest(), undisturbed);
}

// A frozen parameter has weights and nothing else; one without elements is
// there all the same.
TEST_F(OneRankCheckpointTest, KeepsFrozenAndEmptyParameters) {
  std::vector<ParamSpec> specs = Specs();
  specs[1] = {"frozen", {3, 50}, DType::kBF16, false};
  specs.push_back({"empty", {0, 4}, DType::kBF16, true});
  specs.push_back({"scalar", {}, DType::kF32, true});
  Reopen(Roomy(3), specs);
  ASSERT_THAT(engine_->Save({.directory = Dir()}), IsOk());
  const CheckpointManifest manifest = *ParseManifest(
      FileText(Dir() + "/" + CheckpointName(0) + "/" + kManifestName));
  ASSERT_EQ(manifest.params.size(), 5u);
  EXPECT_EQ(manifest.params[1].states.size(), 1u);
  EXPECT_EQ(manifest.params[3].states.size(), 1u);
  EXPECT_EQ(manifest.params[4].states.size(), 3u);
  ASSERT_THAT(engine_->Load({.directory = Dir()}), IsOk());
}

}  // namespace
}  // namespace castor
