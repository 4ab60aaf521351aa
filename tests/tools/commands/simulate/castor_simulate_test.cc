// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// `castor simulate` as a process: every form of its answer, and its exit codes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/log.h"
#include "chunk/base/units.h"
#include "chunk/text/json_value.h"
#include "collectives/zero_options.h"
#include "offload/lanes/executor.h"
#include "offload/record/record_writer.h"
#include "placement/machine/tier_model_file.h"
#include "placement/tier_model.h"
#include "placement/trace/trace_file.h"
#include "tests/support/file_text.h"
#include "tests/support/temp_dir.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int kChunks = 8;

class CastorSimulateTest : public testing::Test {
 protected:
  CastorSimulateTest() {
    std::ofstream(trace_) << WriteTrace(StepOfTwoSweeps());
    TierModel machine;
    machine.host_to_device = LinkModel{1'000'000'000, 1'000};
    machine.device_to_host = LinkModel{1'000'000'000, 1'000};
    machine.nvme_read = LinkModel{500'000'000, 10'000};
    machine.nvme_write = LinkModel{400'000'000, 10'000};
    std::ofstream(machine_) << FormatTierModel(machine);
  }

  // Forward and backward through chunks of a MiB, gradients on the way back.
  static TraceFile StepOfTwoSweeps() {
    TraceFile trace;
    const auto add = [&](AccessKind kind, int c, int64_t ns) {
      trace.step.accesses.push_back({kind, ChunkId(c)});
      trace.step.compute_ns.push_back(ns);
    };
    for (int c = 0; c < kChunks; ++c) {
      trace.chunks.push_back({0, MiB(1), MiB(1), true});
      add(AccessKind::kUse, c, 500'000);
      add(AccessKind::kUseEnd, c, 0);
    }
    for (int c = kChunks; c-- > 0;) {
      add(AccessKind::kUse, c, 0);
      add(AccessKind::kGradOpen, c, 1'000'000);
      add(AccessKind::kGradClose, c, 0);
      add(AccessKind::kUseEnd, c, 0);
    }
    return trace;
  }

  ProcessOutcome Simulate(std::vector<std::string> more) {
    std::vector<std::string> args = {"tools/castor", "simulate", trace_,
                                     "--machine", machine_};
    args.insert(args.end(), more.begin(), more.end());
    return RunProcess(args);
  }

  TempDir dir_;
  const std::string trace_ = dir_.File("step.json");
  const std::string machine_ = dir_.File("machine.json");
};

// The page that README.md shows has every speed.
TEST_F(CastorSimulateTest, SaysWhatTheMachineDoesNotKnow) {
  const std::vector<std::string> budgets = {"--device-budget", "6MiB",
                                            "--host-budget", "256MiB"};
  EXPECT_THAT(Simulate(budgets).out,
              HasSubstr("No speed    optimizer: taken to be instant"));
}

TEST_F(CastorSimulateTest, GivesOneDocument) {
  const ProcessOutcome got = Simulate(
      {"--device-budget", "6MiB", "--host-budget", "256MiB", "--json"});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  const JsonValue json = ParseJson(got.out).value();
  EXPECT_EQ(json["schema"].text(), "castor.simulation/1");
  EXPECT_TRUE(json["sweep"].is_null());
  EXPECT_EQ(json["not_known"].Dump(), "[\"optimizer\"]");
  EXPECT_EQ(json["trace"]["chunks"], kChunks);
  EXPECT_EQ(json["trace"]["accesses"], 6 * kChunks);
  ASSERT_EQ(json["points"].size(), 1u);
  const JsonValue& point = json["points"][0];
  EXPECT_TRUE(point["fits"].boolean());
  const int64_t compute_ns = kChunks * 1'500'000;
  EXPECT_GE(point["step"]["ns"].integer(), compute_ns);
  EXPECT_EQ(point["step"]["resources"][0]["name"].text(), "compute");
  EXPECT_EQ(point["step"]["resources"][0]["busy_ns"].integer(), compute_ns);
  EXPECT_LE(point["tiers"][0]["peak_bytes"].integer(), MiB(6).count());
  EXPECT_EQ(json["engine"]["grad_mode"].text(), "separate");
  // The first step has no plan to fetch ahead by, and at its end the next one's
  // begins; one rank reads a home for each gather.
  const JsonValue& first = point["first_step"];
  EXPECT_LE(first["prefetched_gathers"].integer(), 3);
  EXPECT_GE(first["demand_gathers"].integer(), kChunks);
  for (const char* of : {"step", "first_step"}) {
    const JsonValue& step = point[of];
    EXPECT_EQ(step["gathers"].integer(), step["prefetched_gathers"].integer() +
                                             step["demand_gathers"].integer());
    EXPECT_EQ(step["fetches"].integer(), step["prefetched_fetches"].integer() +
                                             step["demand_fetches"].integer());
    EXPECT_EQ(step["fetches"].integer(), step["gathers"].integer());
  }
  EXPECT_GT(point["step"]["prefetched_fetches"].integer(), 0);
  const ProcessOutcome fp32 =
      Simulate({"--device-budget", "8MiB", "--host-budget", "256MiB",
                "--grad-mode", "fp32", "--json"});
  ASSERT_EQ(fp32.exit_code, 0) << fp32.err;
  EXPECT_EQ(ParseJson(fp32.out).value()["engine"]["grad_mode"].text(), "fp32");
  // Over parameters they take no slots: less device memory will do.
  const std::vector<std::string> tight = {
      "--device-budget", "1MiB", "--host-budget", "256MiB", "--clip", "0"};
  EXPECT_EQ(Simulate(tight).exit_code, 3);
  std::vector<std::string> over = tight;
  over.insert(over.end(), {"--grad-mode", "reuse", "--json"});
  const ProcessOutcome reuse = Simulate(over);
  ASSERT_EQ(reuse.exit_code, 0) << reuse.err;
  const JsonValue reused = ParseJson(reuse.out).value();
  EXPECT_EQ(reused["engine"]["grad_mode"].text(), "reuse");
  EXPECT_EQ(reused["points"][0]["step"]["resources"][0]["busy_ns"].integer(),
            compute_ns);
  over.insert(over.end(), {"--dtype", "f32"});
  EXPECT_THAT(Simulate(over).err, HasSubstr("is F32 and has no master"));
  // The same bytes again.
  EXPECT_EQ(
      Simulate({"--device-budget", "6MiB", "--host-budget", "256MiB", "--json"})
          .out,
      got.out);
}

TEST_F(CastorSimulateTest, FetchesAheadByDeadlines) {
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"--device-budget", "6MiB", "--host-budget",
                                     "256MiB", "--prefetch"};
    args.insert(args.end(), more.begin(), more.end());
    return Simulate(args);
  };
  EXPECT_THAT(with({"deadlines"}).out,
              AllOf(HasSubstr("policy auto, in time fetched ahead"),
                    ContainsRegex("Prefetch +by deadlines, at most [0-9]+ "
                                  "under way; ")));
  const auto point = [&](const std::string& prefetch) {
    const ProcessOutcome got =
        with({prefetch, "--trainer", "thread", "--json"});
    EXPECT_EQ(got.exit_code, 0) << got.err;
    return ParseJson(got.out).value()["points"][0];
  };
  const JsonValue in_time = point("deadlines");
  EXPECT_GT(in_time["prefetch"]["most_ahead"].integer(), 0);
  const JsonValue by_depth = point("3");
  EXPECT_TRUE(by_depth["prefetch"].is_null());
  EXPECT_LE(in_time["step"]["ns"].integer(), by_depth["step"]["ns"].integer());
  // No time is as if none were known.
  EXPECT_THAT(with({"deadlines", "--compute", "0s"}).out,
              AllOf(HasSubstr("policy auto, 3 fetched ahead"),
                    HasSubstr("3 ahead, not by deadlines: no compute time of "
                              "a step is declared;")));
  for (const std::string text : {"soon", ""}) {
    const ProcessOutcome wrong = with({text});
    EXPECT_EQ(wrong.exit_code, 2);
    EXPECT_THAT(wrong.err, HasSubstr("from 0 to 1024 nor deadlines"));
  }
}

TEST_F(CastorSimulateTest, TypesAreThoseOfTheRun) {
  const std::vector<std::string> budgets = {"--device-budget", "8MiB",
                                            "--host-budget", "256MiB"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = budgets;
    args.insert(args.end(), more.begin(), more.end());
    return Simulate(args);
  };
  // A trace of before does not say.
  EXPECT_THAT(with({}).out,
              AllOf(HasSubstr("Assumed     parameters are BF16: the trace does "
                              "not say; --dtype TYPE"),
                    HasSubstr("BF16 parameters, policy")));
  const ProcessOutcome given = with({"--dtype", "f32", "--json"});
  EXPECT_THAT(with({"--dtype", "f32"}).out,
              AllOf(Not(HasSubstr("Assumed")), HasSubstr("F32 parameters")));

  TraceFile typed = StepOfTwoSweeps();
  for (TraceChunk& chunk : typed.chunks) chunk.dtype = DType::kF32;
  std::ofstream(trace_) << WriteTrace(typed);
  EXPECT_THAT(with({}).out,
              AllOf(Not(HasSubstr("Assumed")), HasSubstr("F32 parameters")));
  EXPECT_EQ(with({"--json"}).out, given.out);
  const ProcessOutcome other = with({"--dtype", "bf16"});
  EXPECT_EQ(other.exit_code, 2) << other.out;
  EXPECT_THAT(other.err,
              HasSubstr("--dtype says BF16, and the trace that chunk 0 is F32: "
                        "leave --dtype away"));
}

// One job has one name: what castor plan is told, a step of it is told alike.
TEST_F(CastorSimulateTest, FlagsAndDefaultsAreThoseOfPlan) {
  const std::vector<std::string> budgets = {
      "--device-budget", "12MiB", "--host-budget", "20MiB", "--nvme", "1GiB",
      "--world",         "2",     "--json"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = budgets;
    args.insert(args.end(), more.begin(), more.end());
    return Simulate(args);
  };
  const ProcessOutcome usual = with({});
  ASSERT_EQ(usual.exit_code, 0) << usual.err;
  EXPECT_EQ(
      with({"--clip", "1", "--prefetch", "3", "--ranks-per-host", "1"}).out,
      usual.out);
  const JsonValue json = ParseJson(usual.out).value();
  EXPECT_TRUE(json["engine"]["clip"].boolean());
  EXPECT_EQ(json["machine"]["ranks_that_share_it"].integer(), 1);
  const JsonValue none = ParseJson(with({"--clip", "0"}).out).value();
  EXPECT_FALSE(none["engine"]["clip"].boolean());
  EXPECT_LE(none["points"][0]["step"]["ns"].integer(),
            json["points"][0]["step"]["ns"].integer());
  EXPECT_GT(ParseJson(with({"--ranks-per-host", "2"}).out)
                .value()["points"][0]["step"]["ns"]
                .integer(),
            json["points"][0]["step"]["ns"].integer());
}

TEST_F(CastorSimulateTest, NoTimeIsATimeToo) {
  TraceFile untimed = StepOfTwoSweeps();
  untimed.step.compute_ns.clear();
  std::ofstream(trace_) << WriteTrace(untimed);
  const auto page = [this](std::vector<std::string> more) {
    more.insert(more.end(),
                {"--device-budget", "6MiB", "--host-budget", "256MiB"});
    return Simulate(more);
  };
  EXPECT_THAT(page({}).out,
              HasSubstr("Computes    nobody knows how long: --compute TIME"));
  EXPECT_THAT(page({"--compute", "0s"}).out,
              HasSubstr("Computes    0 ns a step"));
  EXPECT_THAT(page({"--compute", "-1s"}).err,
              HasSubstr("--compute: \"-1s\" is not a time"));
}

TEST_F(CastorSimulateTest, SweepsABudgetAndDrawsIt) {
  const std::string svg = dir_.File("sweep.svg");
  const ProcessOutcome got = Simulate({"--host-budget", "256MiB", "--sweep",
                                       "device-budget=1MiB..96MiB", "--points",
                                       "8", "--clip", "0", "--svg", svg});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  EXPECT_THAT(got.out, AllOf(HasSubstr("device-budget"),
                             HasSubstr("1 MiB  does not fit"),
                             HasSubstr("Too small"), HasSubstr("2 MiB in all"),
                             ContainsRegex("96 MiB +12.0 ms")));
  const std::string plot = FileText(svg);
  EXPECT_THAT(plot, AllOf(StartsWith("<svg xmlns="), HasSubstr("<polyline"),
                          HasSubstr("does not fit"), HasSubstr("60 MiB"),
                          HasSubstr("device budget of a rank"),
                          HasSubstr("time of a step")));
  EXPECT_THAT(plot, Not(HasSubstr("http://www.w3.org/1999/xlink")));
  // More never takes longer where nothing else changes, but for a nanosecond.
  const ProcessOutcome lines = Simulate(
      {"--host-budget", "256MiB", "--sweep", "device-budget=1MiB..96MiB",
       "--points", "8", "--clip", "0", "--plain"});
  ASSERT_EQ(lines.exit_code, 0);
  std::istringstream in(lines.out);
  std::string line;
  std::vector<std::string> all;
  while (std::getline(in, line)) all.push_back(line);
  ASSERT_EQ(all.size(), 9u);
  EXPECT_THAT(all[0], StartsWith("#device_budget_bytes\thost_budget_bytes\t"));
  EXPECT_THAT(all[1], StartsWith("1048576\t268435456\tno\t"));
  EXPECT_THAT(all[8], StartsWith("100663296\t268435456\tyes\t12000000\t"));
  int64_t before_bytes = 0;
  int64_t before_ns = INT64_MAX;
  int fitting = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    std::istringstream fields(all[i]);
    int64_t device = 0, host = 0, step_ns = 0;
    std::string fits;
    ASSERT_TRUE(fields >> device >> host >> fits) << all[i];
    EXPECT_GT(device, before_bytes);
    before_bytes = device;
    if (fits == "no") {
      EXPECT_EQ(fitting, 0) << "less fits: " << all[i];
      continue;
    }
    ASSERT_TRUE(fields >> step_ns) << all[i];
    EXPECT_GT(step_ns, 0);
    if (fitting++ > 0) {
      EXPECT_LE(step_ns, before_ns + 1) << all[i];
    }
    before_ns = step_ns;
  }
  EXPECT_GE(fitting, 5);
}

TEST_F(CastorSimulateTest, OtherRanksStagesTypesAndTimes) {
  for (const std::string stage : {"0", "1", "2", "3"}) {
    for (const std::string ranks : {"1", "3"}) {
      const ProcessOutcome got = Simulate(
          {"--device-budget", "12MiB", "--host-budget", "40MiB", "--nvme",
           "1GiB", "--stage", stage, "--world", ranks, "--dtype", "f32",
           "--compute", "30ms", "--trainer", "thread", "--json"});
      ASSERT_EQ(got.exit_code, 0) << got.err;
      const JsonValue step =
          ParseJson(got.out).value()["points"][size_t{0}]["step"];
      EXPECT_EQ(step["resources"][0]["busy_ns"].integer(), 30'000'000);
      EXPECT_EQ(step["wire_sent_bytes"].integer() > 0, ranks == "3");
    }
  }
}

// Where parameters are gathered twice, groups send less: what replicas tell
// each other is as much as one gather of all ranks takes more. Gradients or
// parameters, that is as much either way.
TEST_F(CastorSimulateTest, GroupsOfRanksSendLess) {
  const auto sent = [&](const std::string& group, const std::string& span) {
    const ProcessOutcome got = Simulate(
        {"--device-budget", "8MiB", "--host-budget", "256MiB", "--world", "4",
         "--shard-group", group, "--optimizer-span", span, "--json"});
    EXPECT_EQ(got.exit_code, 0) << got.err;
    const JsonValue json = ParseJson(got.out).value();
    EXPECT_EQ(json["engine"]["shard_group"].integer(), std::stoi(group));
    return json["points"][size_t{0}]["step"]["wire_sent_bytes"].integer();
  };
  EXPECT_LT(sent("2", "group"), sent("4", "group"));
  EXPECT_LT(sent("1", "group"), sent("2", "group"));
  EXPECT_EQ(sent("2", "world"), sent("2", "group"));
}

TEST_F(CastorSimulateTest, HomesAreAsLimitsAndRulesSay) {
  const auto homes = [this](std::vector<std::string> more) {
    more.insert(more.end(), {"--device-budget", "64MiB", "--host-budget",
                             "256MiB", "--nvme", "1GiB", "--json"});
    const ProcessOutcome got = Simulate(more);
    EXPECT_EQ(got.exit_code, 0) << got.err;
    const JsonValue tiers =
        ParseJson(got.out).value()["points"][size_t{0}]["tiers"];
    return std::vector<int64_t>{tiers[0]["home_bytes"].integer(),
                                tiers[1]["home_bytes"].integer(),
                                tiers[2]["home_bytes"].integer()};
  };
  // Parameters and gradients of 2 bytes, masters and moments of 12.
  const int64_t state = MiB(kChunks).count();
  EXPECT_THAT(homes({"--limit", "all@device=0%"}),
              testing::ElementsAre(0, 8 * state, 0));
  EXPECT_THAT(
      homes({"--limit", "param@device=50%", "--limit", "exp_avg@host=0%"}),
      testing::ElementsAre(state / 2, 8 * state - state / 2 - 2 * state,
                           2 * state));
  EXPECT_THAT(
      homes({"--limit", "all@device=0%", "--place", "nvme:chunk.3,state=grad"}),
      testing::ElementsAre(0, 8 * state - MiB(1).count(), MiB(1).count()));
}

TEST_F(CastorSimulateTest, ALayoutGivesChunksNames) {
  const std::string model = dir_.File("model.tsv");
  std::ofstream list(model);
  for (int c = 0; c < kChunks; ++c) list << "w" << c << "\t262144\tF32\n";
  list.close();
  const std::string layout = dir_.File("layout.json");
  const ProcessOutcome made =
      RunProcess({"tools/castor", "search", model, "--order", "file", "--min",
                  "1MiB", "--max", "1MiB", "--mode", "uniform", "-o", layout});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::vector<std::string> args = {
      "--device-budget", "16MiB", "--host-budget", "256MiB",
      "--nvme",          "1GiB",  "--layout",      layout};
  const auto with = [&args](std::vector<std::string> more) {
    more.insert(more.begin(), args.begin(), args.end());
    return more;
  };
  const ProcessOutcome got =
      Simulate(with({"--limit", "all@device=0%", "--place",
                     "nvme:w5,state=param", "--json"}));
  ASSERT_EQ(got.exit_code, 0) << got.err;
  const JsonValue tiers =
      ParseJson(got.out).value()["points"][size_t{0}]["tiers"];
  EXPECT_EQ(tiers[2]["home_bytes"].integer(), MiB(1).count());
  // Parameters are their own masters.
  EXPECT_EQ(tiers[1]["home_bytes"].integer(), MiB(4 * kChunks - 1).count());
  const ProcessOutcome ranks = Simulate(with({"--world", "2"}));
  EXPECT_EQ(ranks.exit_code, 2);
  EXPECT_THAT(ranks.err, HasSubstr("is a layout for 1 ranks, and not 2"));
  const ProcessOutcome type = Simulate(with({"--dtype", "f32"}));
  EXPECT_EQ(type.exit_code, 2);
  EXPECT_THAT(type.err, HasSubstr("leave --dtype away"));
}

TEST_F(CastorSimulateTest, EvaluationsAndOtherStepsAreServedOnDemand) {
  TraceFile shorter = StepOfTwoSweeps();
  shorter.step.accesses.erase(shorter.step.accesses.begin() + 4,
                              shorter.step.accesses.begin() + 6);
  shorter.step.compute_ns.erase(shorter.step.compute_ns.begin() + 4,
                                shorter.step.compute_ns.begin() + 6);
  const std::string then = dir_.File("then.json");
  std::ofstream(then) << WriteTrace(shorter);
  const std::vector<std::string> budgets = {"--device-budget", "6MiB",
                                            "--host-budget", "256MiB"};
  std::vector<std::string> args = budgets;
  args.insert(args.end(), {"--then", then, "--evaluate", "2"});
  const ProcessOutcome page = Simulate(args);
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out, AllOf(HasSubstr("2 times a step"),
                              HasSubstr("departs: on demand from there"),
                              ContainsRegex("step.json +[0-9.]+ ms.* yes")));
  args.push_back("--json");
  const ProcessOutcome got = Simulate(args);
  ASSERT_EQ(got.exit_code, 0) << got.err;
  const JsonValue json = ParseJson(got.out).value();
  EXPECT_EQ(json["trace"]["evaluations"].integer(), 2);
  const JsonValue& point = json["points"][0];
  ASSERT_EQ(point["then"].size(), 3u);
  EXPECT_EQ(point["then"][0]["file"].text(), then);
  EXPECT_EQ(point["then"][0]["step"]["divergences"].integer(), 1);
  EXPECT_EQ(point["then"][1]["step"]["divergences"].integer(), 1);
  EXPECT_EQ(point["then"][2]["step"]["divergences"].integer(), 0);
  // Two passes of a forward sweep, and what a step without them takes.
  EXPECT_EQ(point["step"]["resources"][0]["busy_ns"].integer(),
            kChunks * (1'500'000 + 2 * 500'000));
  std::vector<std::string> plain = budgets;
  plain.push_back("--json");
  const JsonValue without = ParseJson(Simulate(plain).out).value();
  EXPECT_EQ(without["points"][0]["then"].size(), 0u);
  EXPECT_GT(point["step"]["gathers"].integer(),
            without["points"][0]["step"]["gathers"].integer());
}

TEST_F(CastorSimulateTest, EndsWithTheExitCodeOfWhatIsWrong) {
  const struct {
    std::vector<std::string> more;
    int exit_code;
    const char* message;
  } kCases[] = {
      {{"--device-budget", "1MiB", "--host-budget", "256MiB"},
       3,
       "raise the device budget by"},
      {{"--host-budget", "1KiB", "--sweep", "device-budget=1MiB..2MiB"},
       3,
       "no budget of the sweep fits"},
      {{"--host-budget", "1GiB"}, 2, "--device-budget SIZE is missing"},
      {{"--device-budget", "1GiB", "--host-budget", "1GiB", "--world", "4",
        "--shard-group", "3"},
       2,
       "4 ranks cannot be cut into shard groups of 3"},
      {{"--device-budget", "1GiB"}, 2, "--host-budget SIZE is missing"},
      {{"--device-budget", "1GiB", "--host-budget", "1GiB", "--sweep",
        "device-budget=1MiB..2MiB"},
       2,
       "--device-budget is swept"},
      {{"--host-budget", "1GiB", "--sweep", "device-budget=2MiB..1MiB"},
       2,
       "not above the first"},
      {{"--host-budget", "1GiB", "--sweep", "nvme=1MiB..2MiB"},
       2,
       "is no budget to sweep"},
      {{"--device-budget", "1GiB", "--host-budget", "1GiB", "--svg", "a.svg"},
       2,
       "--svg draws a sweep"},
      {{"--device-budget", "1GiB", "--host-budget", "1GiB", "--ranks-per-host",
        "2"},
       2,
       "more than the 1 ranks"},
      {{"--device-budget", "1GiB", "--host-budget", "1GiB", "--compute", "9"},
       2,
       "--compute"},
      {{"--device-budget", "1GiB", "--host-budget", "1GiB", "--device-memory",
        "9"},
       2,
       "--device-memory"},
      {{"--device-budget", "1GiB", "--host-budget", "1GiB", "--limit", "x"},
       2,
       "--limit"},
      {{"--device-budget", "1GiB", "--host-budget", "1GiB", "--place",
        "host:wte"},
       2,
       "wte"},
      {{"--device-budget", "1GiB", "--host-budget", "1GiB", "--limit",
        "all@device=0%", "--limit", "all@host=0%"},
       3,
       ""},
      {{"--host-budget", "1GiB", "--sweep", "device-budget=1MiB..2MiB",
        "--then", trace_},
       2,
       "give one of them"},
      {{"--device-budget", "1GiB", "--host-budget", "1GiB", "--then",
        dir_.File("no.json")},
       2,
       "no.json"},
      {{"--device-budget", "1GiB", "--host-budget", "1GiB", "--layout", trace_},
       4,
       "step.json"}};
  for (const auto& each : kCases) {
    const ProcessOutcome got = Simulate(each.more);
    EXPECT_EQ(got.exit_code, each.exit_code) << got.err;
    EXPECT_EQ(got.out, "");
    EXPECT_THAT(got.err, HasSubstr(each.message));
  }
  std::ofstream(trace_) << "{\"schema\": \"castor.trace/1\"";
  const ProcessOutcome broken =
      Simulate({"--device-budget", "1GiB", "--host-budget", "1GiB"});
  EXPECT_EQ(broken.exit_code, 4) << broken.err;
  std::ofstream(trace_) << WriteTrace(TraceFile());
  EXPECT_EQ(
      Simulate({"--device-budget", "1GiB", "--host-budget", "1GiB"}).exit_code,
      4);
}

// Which parameters keep moments of 8 bits, only a run with such moments knows.
TEST_F(CastorSimulateTest, RefusesMomentsOf8BitsOfAPlainTrace) {
  const ProcessOutcome got =
      Simulate({"--device-budget", "6MiB", "--host-budget", "256MiB",
                "--moments", "8bit"});
  EXPECT_EQ(got.exit_code, 2);
  EXPECT_THAT(got.err, HasSubstr("--moments 8bit: the layout packs parameter"));
}

class SimulatedRunTest : public testing::Test {
 protected:
  // A run of stage 2 with little room, whose states are on a drive.
  explicit SimulatedRunTest(DType moments = DType::kF32) {
    Log quiet([](LogLevel, std::string_view) {});
    ThreadPool pool(2);
    auto recorder = FileRecorder::Create(record_);
    EXPECT_TRUE(recorder.ok());
    ZeroOptions options;
    options.stage = 2;
    options.executor = &pool;
    options.log = &quiet;
    options.chunk_size = KiB(8);
    options.device_budget = KiB(240);
    options.host_budget = KiB(120);
    options.nvme = {{dir_.path(), std::nullopt}};
    options.recorder = recorder->get();
    options.optimizer.moment_dtype = moments;
    ToyModel model = MakeToyModel(7, 24, 2000, DType::kF32);
    if (IsBlocks8(moments)) {
      options.device_budget = KiB(480);
      for (size_t p = 8; p < 16; ++p) model.params[p].shape = {4096};
    }
    ToyRun run;
    run.steps = 5;
    EXPECT_TRUE(TrainToy(model, run, 1, options).status.ok());
    EXPECT_TRUE((*recorder)->Close().ok());
  }

  JsonValue Simulate(std::vector<std::string> more) {
    std::vector<std::string> args = {"tools/castor", "simulate", record_,
                                     "--json"};
    args.insert(args.end(), more.begin(), more.end());
    const ProcessOutcome got = RunProcess(args);
    EXPECT_EQ(got.exit_code, 0) << got.err;
    return ParseJson(got.out).value();
  }

  TempDir dir_;
  const std::string record_ = dir_.File("run.rec");
};

TEST_F(SimulatedRunTest, IsTheRunWhereFlagsSayNothingElse) {
  const JsonValue as_it_was = Simulate({});
  const JsonValue& point = as_it_was["points"][0];
  EXPECT_EQ(as_it_was["engine"]["stage"], JsonValue(2));
  EXPECT_EQ(point["device_budget_bytes"], JsonValue(KiB(240).count()));
  EXPECT_EQ(point["host_budget_bytes"], JsonValue(KiB(120).count()));
  EXPECT_GT(point["step"]["ns"].integer(), 0);
  EXPECT_EQ(as_it_was["recorded"]["simulated_ns"], point["step"]["ns"]);
  EXPECT_GT(as_it_was["recorded"]["ns"].integer(), 0);
  EXPECT_GT(point["tiers"][2]["home_bytes"].integer(), 0);

  // What is an engine's default, too, where it is given.
  const JsonValue other =
      Simulate({"--stage", "3", "--host-budget", "8MiB", "--prefetch", "1"});
  EXPECT_EQ(other["engine"]["stage"], JsonValue(3));
  EXPECT_EQ(other["points"][0]["tiers"][2]["home_bytes"], JsonValue(0));
  // Rules of the run stay before those that are given.
  EXPECT_EQ(Simulate({"--host-budget", "8MiB", "--place",
                      "nvme:*"})["points"][0]["tiers"][1]["home_bytes"],
            JsonValue(0));
  EXPECT_EQ(Simulate({"--sweep", "host-budget=120KiB..8MiB", "--points",
                      "3"})["points"]
                .size(),
            3u);
}

class SimulatedRunIn8BitsTest : public SimulatedRunTest {
 protected:
  SimulatedRunIn8BitsTest() : SimulatedRunTest(DType::kBlocks8) {}
};

// The layout of the record says which chunks have such moments.
TEST_F(SimulatedRunIn8BitsTest, IsTheRun) {
  const JsonValue as_it_was = Simulate({});
  const JsonValue& point = as_it_was["points"][0];
  EXPECT_EQ(as_it_was["recorded"]["simulated_ns"], point["step"]["ns"]);
  EXPECT_GT(point["tiers"][2]["home_bytes"].integer(), 0);
  const JsonValue in_fp32 = Simulate({"--moments", "F32"});
  const int64_t saved =
      in_fp32["points"][0]["tiers"][2]["home_bytes"].integer() -
      point["tiers"][2]["home_bytes"].integer();
  // Of two moments of eight parameters, at 4 bytes a value; some are elsewhere.
  EXPECT_GT(saved, 2 * 8 * 4096 * 4 / 2);
}

TEST_F(SimulatedRunTest, ARecordThatWasCutOffIsSaidToBe) {
  std::filesystem::resize_file(record_,
                               std::filesystem::file_size(record_) - 1);
  const ProcessOutcome got = RunProcess({"tools/castor", "simulate", record_});
  EXPECT_EQ(got.exit_code, 6) << got.err;
  EXPECT_THAT(got.out, HasSubstr("Recorded    step "));
  EXPECT_THAT(got.err, HasSubstr("readable up to byte"));
}

TEST_F(SimulatedRunTest, ARecordThatLacksItsDocumentsIsRefused) {
  const std::string old = dir_.File("old.rec");
  { auto recorder = FileRecorder::Create(old); }
  const ProcessOutcome got = RunProcess({"tools/castor", "simulate", old});
  EXPECT_EQ(got.exit_code, 2);
  EXPECT_THAT(got.err, HasSubstr("the record lacks what a simulation needs"));
}

}  // namespace
}  // namespace castor
