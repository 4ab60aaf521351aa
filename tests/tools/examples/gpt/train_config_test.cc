// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/train_config.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "collectives/lr_schedule.h"
#include "collectives/zero_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/placement_rules.h"
#include "placement/run_event.h"
#include "placement/static_policy.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tools/examples/gpt/train_flags.h"

namespace castor::gpt {
namespace {

using testing::HasSubstr;

// The flags of a run with a config of this text.
Result<TrainFlags> Taken(const TempDir& dir, const std::string& text,
                         std::vector<std::string> args) {
  std::ofstream(dir.File("config.json")) << text;
  args.insert(args.end(), {"--config", dir.File("config.json")});
  CommandLine line("train_gpt", "Trains.");
  TrainFlags flags;
  DeclareTrainFlags(line.app(), flags);
  CASTOR_RETURN_IF_ERROR(ParseFlags(line.app(), args).status());
  CASTOR_RETURN_IF_ERROR(TakeConfigFile(&flags));
  return flags;
}

// Flags that say nothing of the engine, or of what it is for: the model, its
// data, what is printed, and files of the program's own. A plan is another
// config.
const std::set<std::string> kOfTheTrainer = {
    "--help", "--text",      "--layers",     "--heads", "--embd",
    "--seq",  "--batch",     "--accumulate", "--seed",  "--dtype",
    "--plan", "--config",    "--record",     "--trace", "--digest-at",
    "--json", "--reference", "--print-model"};

TEST(TrainConfigTest, EveryFlagIsOfTheTrainerOrHasItsKey) {
  CommandLine line("train_gpt", "Trains.");
  TrainFlags flags;
  DeclareTrainFlags(line.app(), flags);
  std::set<std::string> with_key;
  for (const FlagAndKey& same : FlagsAndKeys()) {
    with_key.insert(std::string(same.flag));
  }
  std::istringstream help(line.Help());
  std::set<std::string> declared;
  for (std::string text; std::getline(help, text);) {
    const size_t begin = text.find_first_not_of(' ');
    // "-h,--help" has its short name in front.
    const size_t flag = text.find("--", begin == text.npos ? 0 : begin);
    if (flag == text.npos || flag > begin + 3) continue;
    declared.insert(text.substr(flag, text.find_first_of(" ,", flag) - flag));
  }
  EXPECT_TRUE(declared.contains("--save-async"));
  for (const std::string& flag : declared) {
    EXPECT_NE(with_key.contains(flag), kOfTheTrainer.contains(flag))
        << flag << " has neither a key in a config nor a reason for none";
  }
  for (const std::string& flag : with_key) {
    EXPECT_TRUE(declared.contains(flag)) << flag << " is no flag";
  }
}

TEST(TrainConfigTest, EveryKeyOfAFlagIsInADocument) {
  const std::vector<std::string> keys = ConfigKeys();
  for (const FlagAndKey& same : FlagsAndKeys()) {
    EXPECT_TRUE(std::any_of(keys.begin(), keys.end(),
                            [&](const std::string& key) {
                              return same.key.ends_with('.')
                                         ? key.starts_with(same.key)
                                         : key == same.key;
                            }))
        << same.key;
  }
}

TEST(TrainConfigTest, RatesRanksAndCheckpointsGoWhereTheirFlagsGo) {
  const TempDir dir;
  const Result<TrainFlags> flags = Taken(dir, R"({
        "learning_rate": {"schedule": "cosine", "peak": 0.5, "floor": 0.25,
                          "warmup_steps": 3, "steps": 7},
        "launch": {"ranks": 2, "rank": 1, "backend": "nccl",
                   "reduce": "native", "id_file": "ids",
                   "timeout_seconds": 9},
        "checkpoint": {"directory": "run", "every": 5, "keep": 2,
                       "async": true, "resume": "old",
                       "init": "weights"}})",
                                         {});
  ASSERT_THAT(flags, IsOk());
  EXPECT_EQ(flags->ranks, 2);
  EXPECT_EQ(flags->rank, 1);
  EXPECT_EQ(flags->backend, "nccl");
  EXPECT_EQ(flags->reduce, "native");
  EXPECT_EQ(flags->id_file, "ids");
  EXPECT_EQ(flags->rank_timeout, 9);
  EXPECT_EQ(flags->train.save, "run");
  EXPECT_EQ(flags->save_every, 5);
  EXPECT_EQ(flags->keep, 2);
  EXPECT_TRUE(flags->train.save_async);
  EXPECT_EQ(flags->train.resume, "old");
  EXPECT_EQ(flags->train.init, "weights");
  EXPECT_EQ(flags->train.steps, 7);

  const Result<TrainFlags> begun =
      Taken(dir, R"({"learning_rate": {"schedule": "linear", "peak": 0.5,
                                 "floor": 0.25, "warmup_steps": 3},
               "checkpoint": {"directory": "run", "every": 5}})",
            {"--steps", "9", "--keep", "4"});
  ASSERT_THAT(begun, IsOk());
  const Result<TrainOptions> options = OptionsOf(*begun);
  ASSERT_THAT(options, IsOk());
  const LrSchedule schedule = ScheduleOf(*options);
  EXPECT_EQ(schedule.shape, LrShape::kLinear);
  EXPECT_EQ(schedule.peak, 0.5);
  EXPECT_EQ(schedule.floor, 0.25);
  EXPECT_EQ(schedule.warmup, 3);
  EXPECT_EQ(schedule.steps, 9);
  EXPECT_EQ(options->save, "run");
  EXPECT_EQ(options->save_every, 5);
  EXPECT_EQ(options->keep, 4);
}

TEST(TrainConfigTest, HomesAndTheMachineReachTheOptions) {
  const TempDir dir;
  std::ofstream(dir.File("machine.json")) << R"({"schema": "castor.machine/1",
             "memory": {"bytes_per_second": 7}})";
  const std::string machine =
      "\"machine\": \"" + dir.File("machine.json") + "\"";
  const Result<TrainFlags> flags = Taken(dir, "{" + machine + R"(,
        "home_limits": [{"state": "param", "tier": "device",
                         "fraction": 0.25}],
        "home_rules": [{"tier": "nvme", "glob": "wte.*"}]})",
                                         {});
  ASSERT_THAT(flags, IsOk());
  const Result<TrainOptions> options = OptionsOf(*flags);
  ASSERT_THAT(options, IsOk());
  ASSERT_TRUE(options->home_limits.has_value());
  EXPECT_EQ(
      (*options->home_limits)[static_cast<size_t>(StateKind::kParam)].device,
      StateLimit(0.25));
  ASSERT_EQ(options->home_rules.size(), 1u);
  EXPECT_EQ(options->home_rules[0].tier, Tier::kNvme);
  ASSERT_TRUE(options->machine.has_value());
  EXPECT_EQ(options->machine->memory->bytes_per_second, 7);
  EXPECT_THAT(
      Taken(dir, "{" + machine + "}", {"--machine", dir.File("machine.json")}),
      StatusIs(ErrorCode::kInvalidArgument,
               HasSubstr("--machine and \"machine\"")));
}

TEST(TrainConfigTest, NothingIsSaidTwice) {
  const TempDir dir;
  const struct {
    std::string text;
    std::vector<std::string> args;
    std::string why;
  } wrong[] = {{R"({"launch": {"ranks": 2}})",
                {"--ranks", "2"},
                "--ranks and \"launch.ranks\""},
               {R"({"launch": {"ranks": 2}})", {"--rank", "0"}, ""},
               {R"({"learning_rate": {"peak": 1}})",
                {"--lr", "1"},
                "--lr and \"learning_rate.peak\""},
               {R"({"checkpoint": {"directory": "a"}})",
                {"--save", "a"},
                "--save and \"checkpoint.directory\""},
               {R"({"checkpoint": {"every": 2}})", {"--save", "a"}, ""},
               {R"({"home_limits": [{"state": "param", "tier": "host",
                            "fraction": 1}]})",
                {"--limit", "grad@host=50%"},
                "--limit and \"home_limits[].state\""},
               {R"({"home_rules": [{"tier": "host"}]})",
                {"--place", "host:*"},
                "--place and \"home_rules[].tier\""},
               {R"({"chunk": {"layout": "a"}})",
                {"--chunk", "1MiB"},
                "--chunk and \"chunk.layout\""}};
  for (const auto& each : wrong) {
    const Status status = Taken(dir, each.text, each.args).status();
    if (each.why.empty()) {
      EXPECT_THAT(status, IsOk()) << each.text;
      continue;
    }
    EXPECT_THAT(status,
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr(each.why)))
        << each.text;
    EXPECT_THAT(status.message(), HasSubstr("leave one away"));
  }
}

}  // namespace
}  // namespace castor::gpt
