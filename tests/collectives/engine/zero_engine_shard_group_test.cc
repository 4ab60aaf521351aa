// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Hierarchical sharding: groups of ranks that each keep all shards. Weights and
// norms have the bits of plain arrays however ranks are grouped, so whoever
// counts a replica twice, or adds up in another order, is found out here.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/kernels/exact_sum.h"
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

struct Grouping {
  int stage = 3;
  int group = 0;
  OptimizerSpan span = OptimizerSpan::kGroup;
};

std::vector<Grouping> AllGroupings(const std::vector<int>& groups) {
  std::vector<Grouping> all;
  for (const int group : groups) {
    for (int stage = 0; stage <= 3; ++stage) {
      all.push_back({stage, group, OptimizerSpan::kGroup});
      if (stage > 0) all.push_back({stage, group, OptimizerSpan::kWorld});
    }
  }
  return all;
}

class ShardGroupTest : public ZeroEngineTest {
 protected:
  static ZeroOptions Grouped(ZeroOptions options, const Grouping& how) {
    options.stage = how.stage;
    options.shard_group = how.group;
    options.optimizer_span = how.span;
    return options;
  }
  static std::string Name(const Grouping& how) {
    return "stage " + std::to_string(how.stage) + ", groups of " +
           std::to_string(how.group) + ", states span the " +
           std::string(OptimizerSpanName(how.span));
  }
};

TEST_F(ShardGroupTest, EveryGroupAndStageEqualsPlainArraysBitByBit) {
  ToyRun run;
  run.micro_batches = 2;
  const ToyModel models[] = {MakeToyModel(31, 14, 2500, DType::kF32),
                             MakeToyModel(31, 14, 2500, DType::kBF16)};
  const ToyResult wants[] = {
      TrainToyReference(models[0], run, 4, 0.02, OptimizerOptions()),
      TrainToyReference(models[1], run, 4, 0.02, OptimizerOptions())};
  size_t number = 0;
  for (const Grouping& how : AllGroupings({1, 2, 4})) {
    SCOPED_TRACE(Name(how));
    const size_t model = ++number % 2;
    if (TestStride() > 1 && number % 5 != 0) continue;
    ZeroOptions options =
        number / 2 % 2 == 0 ? Roomy(0) : Tight(0, KiB(64), KiB(160));
    options.clip_norm = 0.02;
    options.prefetch.depth = static_cast<int>(number % 3);
    const ToyResult got =
        TrainToy(models[model], run, 4, Grouped(options, how));
    ExpectEqual(got, wants[model]);
    ExpectWithinBudgets(got);
    EXPECT_GT(got.norms[0], 0.02) << "clipping is seen";
  }
}

// Ranks that no power of two divides, gradients added up before they are
// reduced, updates before the step, parameters that are frozen, oversize, of
// two types, or without a gradient.
TEST_F(ShardGroupTest, GroupsKeepTheirBitsInEverySemantic) {
  ToyModel model = MakeToyModel(32, 16, 1500, DType::kF32);
  for (size_t p = 0; p < model.params.size(); ++p) {
    if (p % 4 == 1) model.params[p].dtype = DType::kBF16;
    if (p % 5 == 2) model.params[p].trainable = false;
  }
  model.params[8].shape = {40, 150};  // larger than a chunk
  size_t number = 0;
  for (const Grouping& how : AllGroupings({2, 3})) {
    if (how.stage == 2) continue;
    // Each stage at least, where a sanitizer watches.
    if (TestStride() > 1 && number++ % 3 != 0) continue;
    SCOPED_TRACE(Name(how));
    ToyRun run;
    run.micro_batches = 2;
    run.declares = false;
    ZeroOptions options = Grouped(Roomy(0), how);
    if (how.group == 2) {
      run.unused = {3, 4};
      options.clip_norm = 0.05;
    } else {
      run.updates_early = true;
      options.accumulation = AccumulationOrder::kLast;
      options.grad_mode = GradMode::kFp32;
    }
    const ToyResult got = TrainToy(model, run, 6, options);
    ExpectEqual(got, TrainToyReference(model, run, 6, options));
  }
}

TEST_F(ShardGroupTest, AGradientOfSomeRanksUpdatesTheParameterInEveryGroup) {
  const ToyModel model = MakeToyModel(16, 10, 800, DType::kBF16);
  ToyRun run;
  run.declares = false;
  // One chunk: the ranks use equally many parameters of the chunk, not the
  // same.
  run.unused = {9};
  run.unused_by_rank = {
      {0, 3, 5, 7, 8}, {0, 4, 6, 7, 8}, {0, 3, 6, 7, 8}, {0, 4, 5, 7, 8}};
  for (const Grouping& how : AllGroupings({2})) {
    if (how.stage == 3) continue;
    SCOPED_TRACE(Name(how));
    ZeroOptions options = Grouped(Roomy(0), how);
    options.chunk_size = KiB(64);
    options.clip_norm = 0.05;
    ExpectEqual(TrainToy(model, run, 4, options),
                TrainToyReference(model, run, 4, options));
  }
}

// A gradient of one rank that is not finite is known to every group.
TEST_F(ShardGroupTest, AnOverflowInOneGroupSkipsTheStepInAll) {
  const ToyModel model = MakeToyModel(33, 10, 1200, DType::kBF16);
  for (const OptimizerSpan span :
       {OptimizerSpan::kGroup, OptimizerSpan::kWorld}) {
    ToyRun run;
    run.steps = 4;
    run.overflows = [](int rank, int step, int, size_t param) {
      return rank == 3 && step == 1 && param == 5;
    };
    ZeroOptions options = Grouped(Roomy(0), {3, 2, span});
    options.loss_scaling.kind = LossScalingKind::kStatic;
    options.loss_scaling.initial = 256;
    const ToyResult got = TrainToy(model, run, 4, options);
    ExpectEqual(got, TrainToyReference(model, run, 4, options));
    ASSERT_EQ(got.stepped.size(), 4u);
    for (int step = 0; step < 4; ++step) {
      EXPECT_EQ(got.stepped[static_cast<size_t>(step)].applied, step != 1);
    }
  }
}

// Whole parameters are read and written by name on any rank.
TEST_F(ShardGroupTest, ValuesAreReadAndWrittenInEveryGroup) {
  const ToyModel model = MakeToyModel(34, 10, 1200, DType::kBF16);
  ToyRun run;
  const ToyResult want =
      TrainToyReference(model, run, 4, 0, OptimizerOptions());
  run.after_seal = [&](ZeroEngine& engine) -> Status {
    for (size_t p = 0; p < model.params.size(); ++p) {
      const ParamId id(static_cast<int32_t>(p));
      std::vector<float> values(
          static_cast<size_t>(toy::SizeOf(model.params[p])));
      CASTOR_RETURN_IF_ERROR(engine.ReadParam(id, values));
      const std::vector<float> zeros(values.size());
      CASTOR_RETURN_IF_ERROR(engine.WriteParam(id, zeros));
      CASTOR_RETURN_IF_ERROR(engine.WriteParam(id, values));
    }
    return OkStatus();
  };
  run.between_steps = [](ZeroEngine& engine, int) -> Status {
    CASTOR_RETURN_IF_ERROR(engine.Park(Tier::kHost).status());
    return engine.Resume();
  };
  for (const Grouping& how : AllGroupings({2})) {
    SCOPED_TRACE(Name(how));
    ExpectEqual(TrainToy(model, run, 4, Grouped(Roomy(0), how)), want);
  }
}

// What rank 0 of `world` sends to agree on so many words of 64 bits.
Bytes AllReduceBytes(int64_t words, int64_t world) {
  const int64_t slice = words / world;
  return Bytes(8) * (words - slice + slice * (world - 1));
}

TEST_F(ShardGroupTest, WireBytesFollowTheGroups) {
  constexpr int kWorld = 4;
  const ToyModel model = MakeToyModel(8, 24, 2000, DType::kF32);
  size_t number = 0;
  for (const int group : {1, 2, 4}) {
    for (const int stage : {1, 3}) {
      for (const OptimizerSpan span :
           {OptimizerSpan::kGroup, OptimizerSpan::kWorld}) {
        const Grouping how{stage, group, span};
        // Counts are the same where a sanitizer watches: each group once.
        if (TestStride() > 1 && number++ % 5 != 0) continue;
        SCOPED_TRACE(Name(how));
        ToyRun run;
        run.steps = 3;
        ZeroOptions options = Grouped(Tight(0, KiB(64), MiB(1)), how);
        options.clip_norm = 1;
        options.prefetch.depth = 0;
        const ToyResult got = TrainToy(model, run, kWorld, options);
        ASSERT_THAT(got.status, IsOk());

        const int groups = kWorld / group;
        const bool world = span == OptimizerSpan::kWorld;
        const Bytes all = got.layout.allocated_bytes();
        // Gradients: all of the slice's but its own, and those of replicas.
        Bytes step = all / kWorld * (kWorld - 1 + (world ? 0 : groups - 1));
        Bytes gathers;
        if (stage == 3) {
          // Inside the group, and what was updated from across.
          gathers =
              got.stats.chunk_bytes / group * (group - 1) * got.stats.gathers;
          if (world) step += all / kWorld * (groups - 1);
        } else {
          step +=
              world ? all / kWorld * (kWorld - 1) : all / group * (group - 1);
        }
        Bytes agreed = AllReduceBytes(WordsOfInputs(), kWorld) +
                       AllReduceBytes(3, kWorld) + AllReduceBytes(1, kWorld);
        for (const ParamSpec& spec : model.params) {
          agreed += AllReduceBytes((toy::SizeOf(spec) + 1) / 2, kWorld);
        }
        agreed +=
            AllReduceBytes(8 + int64_t{ExactSum::kWords}, kWorld) * run.steps;
        EXPECT_EQ(got.stats.wire_sent, step * run.steps + gathers + agreed);
        EXPECT_EQ(got.stats.engine_copies, Bytes(0));
      }
    }
  }
}

// Smaller groups keep more, and what spans the world does not.
TEST_F(ShardGroupTest, ARankKeepsWhatItsGroupShares) {
  constexpr int kWorld = 4;
  const ToyModel model = MakeToyModel(35, 12, 2000, DType::kF32);
  ToyRun run;
  run.steps = 1;
  for (const int group : {1, 2, 4}) {
    for (const OptimizerSpan span :
         {OptimizerSpan::kGroup, OptimizerSpan::kWorld}) {
      const Grouping how{3, group, span};
      SCOPED_TRACE(Name(how));
      const ToyResult got =
          TrainToy(model, run, kWorld, Grouped(Roomy(0), how));
      ASSERT_THAT(got.status, IsOk());
      const Bytes all = got.layout.allocated_bytes();
      const int others = span == OptimizerSpan::kWorld ? kWorld : group;
      EXPECT_EQ(got.stats.home_bytes[TierIndex(Tier::kDevice)],
                all / group + all * int64_t{3} / others);
    }
  }
}

TEST_F(ShardGroupTest, RefusesGroupsThatCannotBe) {
  const auto ranks = MakeInProcessWorld({.world = 6, .executor = &pool_});
  const auto refused = [&](const Grouping& how) {
    return ZeroEngine::Create(Grouped(Roomy(0), how), ranks[0].get()).status();
  };
  for (const int group : {-1, 4, 5, 12}) {
    EXPECT_THAT(refused({3, group}),
                StatusIs(ErrorCode::kInvalidArgument,
                         testing::AllOf(HasSubstr("6 ranks cannot be cut"),
                                        HasSubstr("groups of 1, 2, 3, 6 can"))))
        << group;
  }
  EXPECT_THAT(refused({0, 2, OptimizerSpan::kWorld}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("stage 0")));
  EXPECT_THAT(refused({3, 3, OptimizerSpan::kWorld}), IsOk());
}

TEST_F(ShardGroupTest, RanksThatGroupDifferentlyLearnSo) {
  const ToyModel model = MakeToyModel(36, 6, 900, DType::kF32);
  std::vector<ToyPart> parts(4, {model, ToyRun(), Grouped(Roomy(0), {3, 2})});
  parts[2].options.shard_group = 4;
  for (const ToyResult& result : TrainToyParts(parts)) {
    EXPECT_THAT(result.status, StatusIs(ErrorCode::kInvalidArgument,
                                        HasSubstr("options: shard_group.")));
  }
  parts[2].options.shard_group = 2;
  parts[3].options.optimizer_span = OptimizerSpan::kWorld;
  for (const ToyResult& result : TrainToyParts(parts)) {
    EXPECT_THAT(result.status, StatusIs(ErrorCode::kInvalidArgument,
                                        HasSubstr("options: optimizer_span.")));
  }
}

// A rank that gives up ends the engines of all groups.
TEST_F(ShardGroupTest, AFailureEndsEveryGroup) {
  const ToyModel model = MakeToyModel(37, 8, 900, DType::kF32);
  std::vector<ToyPart> parts(4, {model, ToyRun(), Grouped(Roomy(0), {3, 2})});
  parts[3].run.fails = [](const ToyMoment& at) {
    return at.step == 1 && at.param == 4;
  };
  for (const ToyResult& result : TrainToyParts(parts)) {
    EXPECT_FALSE(result.status.ok());
  }
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

// Saved by four ranks in groups of two, loaded in every other way: the same
// bits, and the same files when they are saved again, without any state twice.
TEST_F(ShardGroupTest, CheckpointsKnowNoGroups) {
  const ToyModel model = MakeToyModel(52, 12, 2500, DType::kBF16);
  TempDir dir;
  const std::string name = CheckpointName(2);
  for (const OptimizerSpan span :
       {OptimizerSpan::kGroup, OptimizerSpan::kWorld}) {
    SCOPED_TRACE(OptimizerSpanName(span));
    const std::string root =
        dir.File("span-" + std::string(OptimizerSpanName(span)));
    fs::create_directory(root);
    ToyRun run;
    run.steps = 4;
    run.between_steps = [&](ZeroEngine& engine, int step) {
      if (step != 1) return OkStatus();
      return engine.Save({.directory = root + "/saved"}).status();
    };
    const ToyResult want =
        TrainToy(model, run, 4, Grouped(Roomy(0), {3, 2, span}));
    ASSERT_THAT(want.status, IsOk());
    const auto files = FilesOf(root + "/saved/" + name);
    ASSERT_FALSE(files.empty());

    ToyRun none = run;
    none.first_step = none.steps = 2;
    none.between_steps = nullptr;
    const struct {
      int world;
      Grouping how;
    } stops[] = {{3, {3, 3}},
                 {2, {3, 1, OptimizerSpan::kWorld}},
                 {6, {2, 2}},
                 {1, {3, 1}}};
    std::string from = root + "/saved";
    for (const auto& stop : stops) {
      SCOPED_TRACE(testing::Message()
                   << stop.world << " ranks, " << Name(stop.how));
      const std::string to = root + "/by-" + std::to_string(stop.world);
      none.after_seal = [&](ZeroEngine& engine) -> Status {
        CASTOR_RETURN_IF_ERROR(engine.Load({.directory = from}).status());
        return engine.Save({.directory = to}).status();
      };
      ASSERT_THAT(TrainToy(model, none, stop.world,
                           Grouped(Tight(0, KiB(128), KiB(96)), stop.how))
                      .status,
                  IsOk());
      from = to;
      ASSERT_EQ(FilesOf(from + "/" + name), files);
    }
    ToyRun rest = run;
    rest.first_step = 2;
    rest.between_steps = nullptr;
    rest.after_seal = [&](ZeroEngine& engine) {
      return engine.Load({.directory = from}).status();
    };
    const ToyResult got = TrainToy(
        model, rest, 4, Grouped(Roomy(0), {3, 1, OptimizerSpan::kWorld}));
    ASSERT_THAT(got.status, IsOk());
    EXPECT_EQ(got.digest, want.digest);
    EXPECT_EQ(got.weights, want.weights);
  }
}

}  // namespace
}  // namespace castor
