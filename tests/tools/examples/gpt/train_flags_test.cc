// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/train_flags.h"

#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/loss_scaler.h"
#include "collectives/lr_schedule.h"
#include "collectives/options/option_table.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "offload/kernels/optimizer_options.h"
#include "placement/homes/static_policy.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor::gpt {
namespace {

using testing::HasSubstr;

// Of `args`, with the config that they name.
Status Read(const std::vector<std::string>& args, TrainFlags* flags) {
  CommandLine line("train_gpt", "Trains.");
  DeclareTrainFlags(line.app(), *flags);
  CASTOR_RETURN_IF_ERROR(ParseFlags(line.app(), args).status());
  return TakeConfigFile(flags);
}

Result<TrainOptions> Parsed(const std::vector<std::string>& args) {
  TrainFlags flags;
  CASTOR_RETURN_IF_ERROR(Read(args, &flags));
  return OptionsOf(flags, /*processes=*/false);
}

TEST(TrainFlagsTest, DefaultsAreThoseOfTheOptions) {
  const Result<TrainOptions> options = Parsed({});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->model.layers, 9);
  EXPECT_EQ(options->dtype, DType::kF32);
  EXPECT_EQ(options->engine.stage, 3);
  EXPECT_EQ(options->engine.prefetch.depth, 3);
  EXPECT_EQ(options->engine.policy, PlanPolicy::kAuto);
  EXPECT_FALSE(options->machine.has_value());
}

TEST(TrainFlagsTest, FlagsReachTheOptions) {
  const Result<TrainOptions> options =
      Parsed({"--layers", "2", "--dtype", "bf16", "--device-budget", "3MiB",
              "--no-prefetch", "--policy", "planned", "--clip", "0.5",
              "--shard-group", "4", "--optimizer-span", "world"});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->model.layers, 2);
  EXPECT_EQ(options->dtype, DType::kBF16);
  EXPECT_EQ(options->engine.device_budget, MiB(3));
  EXPECT_EQ(options->engine.prefetch.depth, 0);
  EXPECT_EQ(options->engine.policy, PlanPolicy::kPlanned);
  EXPECT_EQ(options->engine.clip_norm, 0.5);
  EXPECT_EQ(options->engine.shard_group, 4);
  EXPECT_EQ(options->engine.optimizer_span, OptimizerSpan::kWorld);
}

TEST(TrainFlagsTest, DeadlinesAndWhatTheyTakeReachTheOptions) {
  const Result<TrainOptions> options =
      Parsed({"--prefetch", "deadlines", "--compute", "1.5ms"});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->engine.prefetch.mode, PrefetchMode::kDeadlines);
  EXPECT_EQ(options->engine.prefetch.depth, 3);
  EXPECT_EQ(options->engine.step_compute_ns, 1'500'000);
  EXPECT_EQ(Parsed({"--prefetch", "5"})->engine.prefetch.depth, 5);
  EXPECT_EQ(Parsed({"--prefetch", "5"})->engine.prefetch.mode,
            PrefetchMode::kDepth);
  EXPECT_THAT(Parsed({"--prefetch", "soon"}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("deadlines")));
  EXPECT_THAT(Parsed({"--prefetch", ""}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("deadlines")));
  const std::vector<std::string> idle[] = {
      {"--compute", "1s"},
      {"--compute", "1s", "--prefetch", "3"},
      {"--compute", "1s", "--no-prefetch"}};
  for (const std::vector<std::string>& flags : idle) {
    EXPECT_THAT(Parsed(flags),
                StatusIs(ErrorCode::kInvalidArgument,
                         HasSubstr("give --prefetch deadlines")));
  }
  EXPECT_THAT(Parsed({"--compute", "soon"}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--compute")));
}

TEST(TrainFlagsTest, WhatIsDoneWithGradientsReachesTheOptions) {
  const Result<TrainOptions> options =
      Parsed({"--dtype", "f16", "--loss-scale", "dynamic", "--grad-mode",
              "fp32", "--accumulation-order", "last", "--decay", "matrices",
              "--warmup", "5", "--schedule", "cosine"});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->dtype, DType::kF16);
  EXPECT_EQ(options->engine.loss_scaling.kind, LossScalingKind::kDynamic);
  EXPECT_EQ(options->engine.grad_mode, GradMode::kFp32);
  EXPECT_EQ(options->engine.accumulation, AccumulationOrder::kLast);
  EXPECT_EQ(options->engine.groups.size(), 1u);
  EXPECT_EQ(ScheduleOf(*options).shape, LrShape::kCosine);
  EXPECT_EQ(ScheduleOf(*options).warmup, 5);
  EXPECT_EQ(ScheduleOf(*options).steps, options->steps);
  EXPECT_EQ(Parsed({"--loss-scale", "512"})->engine.loss_scaling.initial, 512);
  for (const char* scale : {"-1", "big", "2x"}) {
    EXPECT_THAT(Parsed({"--loss-scale", scale}),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("dynamic")));
  }
  EXPECT_THAT(Parsed({"--schedule", "linear", "--warmup", "30"}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("warm-up")));
}

TEST(TrainFlagsTest, LimitsAndRulesReachTheOptions) {
  EXPECT_FALSE(Parsed({})->engine.home_limits.has_value());
  const Result<TrainOptions> options =
      Parsed({"--limit", "exp_avg@host=12MiB", "--limit", "param@device=25%",
              "--place", "nvme:wte.*", "--place", "host:*,state=grad"});
  ASSERT_THAT(options, IsOk());
  ASSERT_TRUE(options->engine.home_limits.has_value());
  EXPECT_THAT(*options->engine.home_limits,
              testing::ElementsAre(HomeLimit{"exp_avg", Tier::kHost, MiB(12)},
                                   HomeLimit{"param", Tier::kDevice, 0.25}));
  ASSERT_EQ(options->engine.home_rules.size(), 2u);
  EXPECT_EQ(options->engine.home_rules[0].glob, "wte.*");
  EXPECT_EQ(options->engine.home_rules[1].state, "grad");
  EXPECT_THAT(
      Parsed({"--limit", "exp_avg@hots=1MiB"}),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("did you mean host?")));
  EXPECT_THAT(Parsed({"--place", "disk:*"}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--place")));
}

// What a config says goes to the engine; what it leaves out flags say; and
// nothing is said twice.
TEST(TrainFlagsTest, AConfigGoesTogetherWithWhatFlagsSay) {
  const TempDir dir;
  const auto with = [&](const std::string& text,
                        std::vector<std::string> flags) {
    std::ofstream(dir.File("config.json")) << text;
    flags.insert(flags.end(), {"--config", dir.File("config.json")});
    return Parsed(flags);
  };
  const Result<TrainOptions> options =
      with(R"({"stage": 1, "clip_norm": 0.5, "device_budget_bytes": 3145728,
               "chunk": {"min_bytes": 65536},
               "optimizer": {"kind": "sgd", "momentum": 0.9},
               "groups": [{"name": "vectors", "lr_scale": 0.5}]})",
           {"--host-budget", "5MiB", "--lr", "0.1"});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->engine.stage, 1);
  EXPECT_EQ(options->engine.clip_norm, 0.5);
  EXPECT_EQ(options->engine.device_budget, MiB(3));
  EXPECT_EQ(options->engine.host_budget, MiB(5));
  EXPECT_EQ(options->lr, 0.1);
  EXPECT_EQ(options->engine.groups.size(), 1u);
  EXPECT_EQ(options->engine.min_chunk, KiB(64));
  EXPECT_EQ(options->engine.optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(options->engine.groups[0].lr_scale, 0.5);
  // Without a word it is what flags ask for.
  const Result<TrainOptions> silent =
      with("{}", {"--decay", "matrices", "--weight-decay", "0.2"});
  ASSERT_THAT(silent, IsOk());
  EXPECT_EQ(silent->engine.clip_norm, EngineDefaults().clip_norm);
  EXPECT_EQ(silent->engine.optimizer.weight_decay, 0.2);
  EXPECT_EQ(silent->engine.optimizer.beta2, EngineDefaults().optimizer.beta2);
  EXPECT_EQ(silent->engine.groups[0].weight_decay, 0.0);

  const struct {
    std::string text;
    std::vector<std::string> flags;
    std::string why;
  } wrong[] = {
      {R"({"stage": 1})", {"--stage", "1"}, "--stage and \"stage\""},
      {R"({"prefetch": 1})", {"--no-prefetch"}, "leave one away"},
      {R"({"prefetch": "deadlines"})", {"--prefetch", "2"}, "leave one away"},
      {R"({"step_compute_ns": 5})", {"--compute", "5ns"}, "leave one away"},
      {R"({"nvme": [{"directory": "/a"}]})", {"--nvme", "/b"}, "nvme[]"},
      {R"({"optimizer": {"kind": "lion"}})",
       {"--weight-decay", "0.1"},
       "optimizer.kind"},
      {R"({"loss_scale": {"kind": "dynamic"}})",
       {"--loss-scale", "dynamic"},
       "loss_scale.kind"},
      {R"({"chunk": {"bytes": 65536}})", {"--chunk", "64KiB"}, "chunk.bytes"},
      {R"({"chunk": {"layout": "a"}})", {"--chunk", "1MiB"}, "chunk.layout"},
      {R"({"launch": {"ranks": 2}})", {"--ranks", "2"}, "\"launch.ranks\""},
      {R"({"learning_rate": {"peak": 1}})",
       {"--lr", "1"},
       "--lr and \"learning_rate.peak\""},
      {R"({"checkpoint": {"directory": "a"}})",
       {"--save", "a"},
       "--save and \"checkpoint.directory\""},
      {R"({"home_limits": [{"state": "param", "tier": "host",
                            "fraction": 1}]})",
       {"--limit", "grad@host=50%"},
       "--limit and \"home_limits[].state\""},
      {R"({"home_rules": [{"tier": "host"}]})",
       {"--place", "host:*"},
       "--place and \"home_rules[].tier\""},
      {R"({"machine": "a"})", {"--machine", "b"}, "--machine and \"machine\""},
      {R"({"groups": [{"name": "vectors"}]})",
       {"--decay", "matrices"},
       "--decay and \"groups[].name\""},
      {R"({"groups": [{"name": "norms"}]})", {}, "\"vectors\""},
      {"{\n  \"stagee\": 1}", {}, "line 2"},
      {R"({"stagee": 1})", {}, "stage"},
      {"{}", {"--plan", "plan.json"}, "--config and --plan"}};
  for (const auto& each : wrong) {
    EXPECT_THAT(with(each.text, each.flags),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr(each.why)))
        << each.text;
  }
}

TEST(TrainFlagsTest, WhatIsOfNcclIsRefusedWithoutIt) {
  for (const auto& [flag, value] :
       {std::pair("--reduce", "native"), std::pair("--id-file", "ids")}) {
    TrainFlags flags;
    ASSERT_THAT(Read({flag, value}, &flags), IsOk());
    EXPECT_THAT(CheckRankFlags(flags),
                StatusIs(ErrorCode::kInvalidArgument,
                         HasSubstr(std::string(flag) + " is of --backend")));
    flags.backend = "nccl";
    EXPECT_THAT(CheckRankFlags(flags), IsOk());
  }
}

// Wherever groups are asked for.
TEST(TrainFlagsTest, SumsOfNcclsOwnAreOfOneGroup) {
  const TempDir dir;
  const std::string config = dir.File("config.json");
  std::ofstream(config) << R"({"shard_group": 2})";
  const std::vector<std::string> native = {"--backend", "nccl",    "--reduce",
                                           "native",    "--ranks", "4"};
  const auto with = [&](const std::string& flag, const std::string& value) {
    std::vector<std::string> args = native;
    args.insert(args.end(), {flag, value});
    return Parsed(args);
  };
  const auto refused = StatusIs(
      ErrorCode::kInvalidArgument,
      testing::AllOf(HasSubstr("shard groups of 2"), HasSubstr("all 4 ranks"),
                     HasSubstr("--reduce exact")));
  EXPECT_THAT(with("--shard-group", "2"), refused);
  EXPECT_THAT(with("--config", config), refused);
  EXPECT_THAT(with("--shard-group", "4"), IsOk());
  EXPECT_THAT(with("--shard-group", "1"), IsOk());
  EXPECT_THAT(Parsed(native), IsOk());
  EXPECT_THAT(Parsed({"--backend", "nccl", "--reduce", "exact", "--ranks", "4",
                      "--shard-group", "2"}),
              IsOk());
}

TEST(TrainFlagsTest, RefusesWhatContradictsItselfOrIsUnknown) {
  EXPECT_THAT(Parsed({"--prefetch", "2", "--no-prefetch"}),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("--no-prefetch and --prefetch")));
  EXPECT_THAT(
      Parsed({"--layout", "a", "--chunk", "1MiB"}),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--layout and --chunk")));
  EXPECT_THAT(Parsed({"--policy", "lru"}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("planned")));
  EXPECT_THAT(Parsed({"--machine", "/nonexistent/machine.json"}),
              testing::Not(IsOk()));
}

TEST(TrainFlagsTest, EveryRowHasAKeyOrAFlagAndNoneTwice) {
  TrainFlags flags;
  std::set<std::string> names;
  const OptionTable table = TrainTable(&flags);
  for (const Option& row : table.rows()) {
    EXPECT_FALSE(row.key.empty() && row.flag.empty());
    for (const std::string& name : {row.key, row.flag}) {
      EXPECT_TRUE(name.empty() || names.insert(name).second) << name;
    }
    EXPECT_TRUE(row.flag.empty() || !row.text.empty()) << row.flag;
  }
  EXPECT_FALSE(names.contains("--optimizer")) << "of castor plan";
}

TEST(TrainFlagsTest, RatesRanksAndCheckpointsGoWhereTheirFlagsGo) {
  const TempDir dir;
  const std::string config = dir.File("config.json");
  std::ofstream(config) << R"({
        "learning_rate": {"schedule": "cosine", "peak": 0.5, "floor": 0.25,
                          "warmup_steps": 3, "steps": 7},
        "launch": {"ranks": 2, "rank": 1, "backend": "nccl",
                   "reduce": "native", "id_file": "ids",
                   "timeout_seconds": 9},
        "checkpoint": {"directory": "run", "every": 5, "keep": 2,
                       "async": true, "resume": "old",
                       "init": "weights"}})";
  const std::vector<std::string> said[] = {
      {"--config", config},
      {"--schedule", "cosine", "--lr",           "0.5",
       "--warmup",   "3",      "--steps",        "7",
       "--ranks",    "2",      "--rank",         "1",
       "--backend",  "nccl",   "--reduce",       "native",
       "--id-file",  "ids",    "--rank-timeout", "9",
       "--save",     "run",    "--save-every",   "5",
       "--keep",     "2",      "--save-async",   "--resume",
       "old",        "--init", "weights"}};
  for (const std::vector<std::string>& args : said) {
    TrainFlags flags;
    ASSERT_THAT(Read(args, &flags), IsOk());
    EXPECT_EQ(flags.ranks, 2);
    EXPECT_EQ(flags.rank, 1);
    EXPECT_EQ(flags.backend, "nccl");
    EXPECT_EQ(flags.reduce, "native");
    EXPECT_EQ(flags.id_file, "ids");
    const TrainOptions& train = flags.train;
    EXPECT_EQ(train.rank_timeout, 9);
    EXPECT_EQ(train.save, "run");
    EXPECT_EQ(train.save_every, 5);
    EXPECT_EQ(train.keep, 2);
    EXPECT_TRUE(train.save_async);
    EXPECT_EQ(train.resume, "old");
    EXPECT_EQ(train.init, "weights");
    const LrSchedule schedule = ScheduleOf(train);
    EXPECT_EQ(schedule.shape, LrShape::kCosine);
    EXPECT_EQ(schedule.peak, 0.5);
    EXPECT_EQ(schedule.floor, flags.config.empty() ? 0 : 0.25);
    EXPECT_EQ(schedule.warmup, 3);
    EXPECT_EQ(schedule.steps, 7);
  }
}

TEST(TrainFlagsTest, HomesAndTheMachineOfAConfigReachTheOptions) {
  const TempDir dir;
  std::ofstream(dir.File("machine.json")) << R"({"schema": "castor.machine/1",
             "memory": {"bytes_per_second": 7000000}})";
  std::ofstream(dir.File("config.json"))
      << "{\"machine\": \"" << dir.File("machine.json") << R"(",
        "home_limits": [{"state": "param", "tier": "device",
                         "fraction": 0.25}],
        "home_rules": [{"tier": "nvme", "glob": "wte.*"}]})";
  const Result<TrainOptions> options =
      Parsed({"--config", dir.File("config.json")});
  ASSERT_THAT(options, IsOk());
  ASSERT_TRUE(options->engine.home_limits.has_value());
  EXPECT_THAT(*options->engine.home_limits,
              testing::ElementsAre(HomeLimit{"param", Tier::kDevice, 0.25}));
  ASSERT_EQ(options->engine.home_rules.size(), 1u);
  EXPECT_EQ(options->engine.home_rules[0].tier, Tier::kNvme);
  ASSERT_TRUE(options->machine.has_value());
  EXPECT_EQ(options->machine->memory->bytes_per_second, 7000000);
}

TEST(TrainFlagsTest, WhatAConfigIsWrongAboutIsNamedWithItsPlace) {
  const TempDir dir;
  const struct {
    const char* text;
    const char* why;
  } wrong[] = {
      {R"({"launch": {"rank_s": 2}})",
       R"("launch" holds the unknown key "rank_s"; did you mean ranks?)"},
      {R"({"launch": {"ranks": 0}})", "whole number from 1"},
      {R"({"launch": {"backend": "mpi"}})", "known are host, nccl"},
      {R"({"learning_rate": 0.1})", "is 0.1 where an object belongs"},
      {R"({"learning_rate": {"schedule": "step"}})", "linear, cosine"},
      {R"({"checkpoint": {"async": 1}})", "true or false"},
      {"{\n \"checkpoint\": {\n  \"evry\": 1}}", "(line 3, column 3)"}};
  for (const auto& each : wrong) {
    std::ofstream(dir.File("config.json")) << each.text;
    EXPECT_THAT(Parsed({"--config", dir.File("config.json")}),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr(each.why)))
        << each.text;
  }
}

}  // namespace
}  // namespace castor::gpt
