// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// `castor explain` as a process: of a plan, of a record, and its exit codes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "chunk/text/json_value.h"
#include "offload/record/record_writer.h"
#include "placement/run_event.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/report/made_run.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr char kLlama[] = "tools/models/configs/llama-3-8b/config.json";

class CastorExplainTest : public testing::Test {
 protected:
  // Two steps of one rank: chunk 2 comes late in both.
  CastorExplainTest() {
    MadeRun run(1);
    run.At(0, 1).Step(0, 100);
    run.Move(Tier::kNvme, Tier::kHost, 5, 10, 400, RunCause::kDemand, 2);
    run.Move(Tier::kHost, Tier::kDevice, 10, 30, 400, RunCause::kDemand, 2);
    run.Stall(RunCause::kDemand, 2, 5, 30).Release(2, 60, RunCause::kRoom);
    run.At(0, 2).Step(100, 200);
    run.Move(Tier::kHost, Tier::kDevice, 110, 150, 400, RunCause::kPrefetch, 2);
    run.Stall(RunCause::kPrefetch, 2, 120, 150);
    run.Release(2, 190, RunCause::kStale);
    run.record.ranks[0].chunks[2].params =
        "layer.2,layer.2.bias,layer.3,layer.3.bias,norm.weight,head.weight";
    auto recorder = FileRecorder::Create(file_);
    EXPECT_TRUE(recorder.ok());
    (*recorder)->AddRank(run.record.ranks[0]);
    for (const RunEvent& event : run.record.events) (*recorder)->Record(event);
    EXPECT_TRUE((*recorder)->Close().ok());
  }

  ProcessOutcome Explain(const std::vector<std::string>& args) {
    std::vector<std::string> command = {"tools/castor", "explain"};
    command.insert(command.end(), args.begin(), args.end());
    return RunProcess(command);
  }

  const TempDir dir_;
  const std::string file_ = dir_.File("run.rec");
};

TEST_F(CastorExplainTest, SaysWhyStatesAreWhereThePlanHasThem) {
  const std::vector<std::string> budgets = {
      kLlama,  "*.embed_tokens.weight", "--dtype", "bf16", "--device-budget",
      "24GiB", "--host-budget",         "128GiB"};
  const ProcessOutcome page = Explain(budgets);
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out,
              AllOf(StartsWith("chunk 0, with model.embed_tokens.weight\n"),
                    HasSubstr("by the budgets, which put"),
                    HasSubstr("  a step moves ")));
  std::vector<std::string> args = budgets;
  args.insert(args.end(),
              {"--place", "host:*.embed_tokens.*,state=param", "--json"});
  const ProcessOutcome document = Explain(args);
  ASSERT_EQ(document.exit_code, 0) << document.err;
  const JsonValue json = ParseJson(document.out).value();
  EXPECT_EQ(json["schema"], "castor.explanation/1");
  const JsonValue& chunk = json["chunks"][0];
  EXPECT_EQ(chunk["homes"][0]["state"], "param");
  EXPECT_EQ(chunk["homes"][0]["tier"], "host");
  EXPECT_THAT(chunk["homes"][0]["why"].text(), HasSubstr("rule 0"));
  // It goes to the device for each gather.
  int64_t up = 0;
  for (const JsonValue& link : chunk["step"]["links"]) {
    if (link["from"] == "host" && link["to"] == "device") {
      up = link["transfers"].integer();
    }
  }
  EXPECT_GE(up, chunk["step"]["gathers"].integer());
  EXPECT_GT(up, 0);
  args.back() = "--plain";
  EXPECT_THAT(Explain(args).out, StartsWith("state\t0\tparam\thost\t"));
}

TEST_F(CastorExplainTest, FindsEveryParameterOfAChunk) {
  for (const std::string name : {"layer.2", "layer.3.bias", "h?ad.weight"}) {
    const ProcessOutcome page = Explain({file_, name});
    EXPECT_EQ(page.exit_code, 0) << page.err;
    EXPECT_THAT(page.out, HasSubstr("chunk 2, 1000 B: \"layer.2,layer.2.bias,"
                                    "layer.3,+3\""));
  }
  const ProcessOutcome document = Explain({file_, "norm.weight", "--json"});
  ASSERT_EQ(document.exit_code, 0) << document.err;
  EXPECT_THAT(ParseJson(document.out).value()["chunks"][0]["params"].text(),
              HasSubstr(",norm.weight,head.weight"));
}

TEST_F(CastorExplainTest, SaysWhereAChunkWasInARunAndWhoWaited) {
  const ProcessOutcome page = Explain({file_, "layer.2"});
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(
      page.out,
      AllOf(HasSubstr("1 rank, steps 1 to 2"), HasSubstr("chunk 2, 1000 B"),
            HasSubstr("came 1 when it was asked for, 1 ahead of use"),
            HasSubstr("went 1 to make room, 1 as the update changed it"),
            HasSubstr("whole on the device in step 2"),
            HasSubstr("param nvme -> host: 400 B in 1 move"),
            HasSubstr("waited for 30.0 us in 1 wait: chunks fetched ahead, "
                      "too late"),
            Not(HasSubstr("chunk 1,"))));
  const ProcessOutcome document =
      Explain({file_, "chunk.2", "--steps", "2", "--json"});
  ASSERT_EQ(document.exit_code, 0) << document.err;
  const JsonValue json = ParseJson(document.out).value();
  EXPECT_EQ(json["schema"], "castor.run-explanation/1");
  const JsonValue& chunk = json["chunks"][0];
  EXPECT_EQ(chunk["chunk"], 2);
  EXPECT_NEAR(chunk["resident_share"].real(), 0.8, 1e-9);
  ASSERT_EQ(chunk["step"].size(), 1u);
  EXPECT_EQ(chunk["step"][0]["begin_ns"], 10'000);
  EXPECT_EQ(chunk["step"][0]["end_ns"], 90'000);
  ASSERT_EQ(chunk["stalls"].size(), 1u);
  EXPECT_EQ(chunk["stalls"][0]["cause"], "prefetch");
  EXPECT_EQ(chunk["stalls"][0]["ns"], 30'000);
  EXPECT_EQ(chunk["stalls"][0]["busiest"], "host -> device");
  EXPECT_THAT(Explain({file_, "*", "--plain"}).out,
              AllOf(HasSubstr("chunk\t3\t1000\t0.000000\t"),
                    HasSubstr("stall\t2\tdemand\t1\t25000\n")));
}

TEST_F(CastorExplainTest, EndsWithTheExitCodeOfWhatIsWrong) {
  const struct {
    std::vector<std::string> args;
    int exit_code;
    const char* message;
  } kCases[] = {
      {{}, 2, "MODEL is missing"},
      {{kLlama}, 2, "PATTERN is missing"},
      {{kLlama, "model.embed_token.weight"}, 2, "nearest name is"},
      {{kLlama, "*", "--steps", "2"}, 2, "--steps is for the record of a run"},
      {{kLlama, "*", "--json", "--plain"}, 2, "exclude each other"},
      {{kLlama, "*", "--device-budget", "1GiB"}, 3, "castor plan "},
      {{file_, "layer.7"}, 2, "nearest name is \"layer."},
      {{file_, "*", "--steps", "7-9"}, 2, "its last one is 2"},
      {{file_, "*", "--world", "2"}, 2, "leave the flags of a plan away"},
      {{dir_.File("missing"), "*"}, 2, "missing"}};
  for (const auto& each : kCases) {
    const ProcessOutcome outcome = Explain(each.args);
    EXPECT_EQ(outcome.exit_code, each.exit_code) << outcome.err;
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err,
                AllOf(StartsWith("castor explain: "), HasSubstr(each.message)));
  }
  std::filesystem::resize_file(file_, std::filesystem::file_size(file_) - 1);
  const ProcessOutcome cut = Explain({file_, "*"});
  EXPECT_EQ(cut.exit_code, 6);
  EXPECT_THAT(cut.out, HasSubstr("chunk 2"));
}

TEST_F(CastorExplainTest, WhoWantsAModelIsToldThatItIsARecord) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"plan", file_},
        {"plan", kLlama, "--trace", file_}}) {
    std::vector<std::string> command = {"tools/castor"};
    command.insert(command.end(), args.begin(), args.end());
    const ProcessOutcome outcome = RunProcess(command);
    EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
    EXPECT_THAT(outcome.err,
                HasSubstr("is the record of a run, which castor report reads"));
  }
}

}  // namespace
}  // namespace castor
