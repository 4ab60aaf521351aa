// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The example trainer as a user meets it: what it prints, how it ends, and what
// it leaves behind.

#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "chunk/text/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/record/record_reader.h"
#include "placement/machine/tier_model_file.h"
#include "placement/run_event.h"
#include "placement/tier_model.h"
#include "placement/trace/trace_file.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"
#include "tests/tools/examples/train_gpt_fixture.h"
#include "tools/models/files/castor_files.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A rate that no training survives.
TEST_F(TrainGptTest, EndsWhereTheLossIsNoLongerFiniteAndKeepsWhatWasSaved) {
  const auto train = [&](std::vector<std::string> more) {
    for (const char* const arg :
         {"--ranks", "2", "--lr", "1000", "--weight-decay", "1000", "--clip",
          "0", "--steps", "30", "--save-every", "1", "--keep", "1"}) {
      more.emplace_back(arg);
    }
    return RunSmall(more);
  };
  const std::string save = dir_.File("lost");
  const ProgramResult lost = train({"--save", save});
  EXPECT_EQ(lost.exit_code, 6) << lost.err;
  EXPECT_THAT(lost.err, AllOf(HasSubstr("the loss is not finite since step"),
                              HasSubstr("step-0000000"), HasSubstr("is kept"),
                              Not(HasSubstr("step 30/30"))));
  size_t kept = 0;
  for (const auto& entry : std::filesystem::directory_iterator(save)) {
    kept += entry.path().filename().string().starts_with("step-") ? 1 : 0;
    EXPECT_THAT(entry.path().string(), Not(HasSubstr("step-0000001")));
  }
  EXPECT_EQ(kept, 1u);
  const ProgramResult went_on =
      train({"--save", dir_.File("all"), "--stop-on-nan", "0"});
  EXPECT_EQ(went_on.exit_code, 0) << went_on.err;
  EXPECT_TRUE(std::filesystem::exists(dir_.File("all/step-00000030")));
}

TEST_F(TrainGptTest, TrainsAndSumsUp) {
  const ProgramResult run =
      RunSmall(Tight({"--ranks", "2", "--digest-at", "2"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("step 1/3"), HasSubstr("step 3/3"),
                             HasSubstr("tokens/s"), HasSubstr("free")));
  EXPECT_THAT(run.out, AllOf(HasSubstr("mean loss of the first 3 steps"),
                             HasSubstr("of 512 KiB"), HasSubstr("of 640 KiB"),
                             HasSubstr("stalled"), HasSubstr("between ranks"),
                             HasSubstr("weight digest after step 2: "),
                             HasSubstr("weight digest: ")));
  ExpectNothingLeft();
}

// What budgets do not hold is a few MiB here, so both have a part of it.
TEST_F(TrainGptTest, DrivesShareWhatOneWouldHold) {
  const std::vector<std::string> model = {
      "--embd",          "128",  "--layers",      "3",    "--chunk", "256KiB",
      "--device-budget", "6MiB", "--host-budget", "5MiB", "--nvme"};
  auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> args = model;
    args.insert(args.end(), more.begin(), more.end());
    return RunSmall(args);
  };
  const std::string second = dir_.File("second");
  std::filesystem::create_directory(second);
  const ProgramResult one = with({dir_.File("nvme")});
  const ProgramResult two =
      with({dir_.File("nvme") + ":16MiB", "--nvme", second + ":3MiB"});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(DigestIn(one.out), DigestIn(two.out));
  EXPECT_THAT(two.err, AllOf(HasSubstr("nvme\""), HasSubstr("second\"")));
  EXPECT_THAT(two.out, AllOf(HasSubstr("of 19 MiB"),
                             HasSubstr("written to nvme in a step: at most")));
  EXPECT_TRUE(std::filesystem::is_empty(second));
  ExpectNothingLeft();
}

TEST_F(TrainGptTest, PrintsOneJsonDocument) {
  const ProgramResult run = RunSmall({"--json", "--dtype", "bf16"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const Result<JsonValue> document = ParseJson(run.out);
  ASSERT_THAT(document, IsOk()) << run.out;
  const JsonValue& json = *document;
  EXPECT_EQ(json["schema"], "castor.train.1");
  EXPECT_EQ(json["losses"].size(), 3u);
  EXPECT_EQ(json["model"]["dtype"], "BF16");
  EXPECT_TRUE(json["tiers"]["device"]["peak_bytes"].is_integer());
}

TEST_F(TrainGptTest, RecordsTheRun) {
  const ProgramResult run =
      RunSmall({"--record", dir_.File("record"), "--ranks", "2"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const auto record = ReadRecord(dir_.File("record"));
  ASSERT_THAT(record, IsOk());
  EXPECT_THAT(record->completeness, IsOk());
  EXPECT_EQ(record->ranks.size(), 2u);
  // Tokens and targets of two sequences of 16, in a page each.
  ASSERT_EQ(record->arenas.size(), 2u);
  for (const RunArenaInfo& arena : record->arenas) {
    EXPECT_EQ(arena.name, "batches");
    EXPECT_THAT(arena.allocator, HasSubstr("jemalloc 5."));
    EXPECT_EQ(arena.buffers, 2);
    EXPECT_EQ(arena.requested_bytes, 2 * 2 * 16 * 4);
    EXPECT_EQ(arena.peak_bytes, 8192);
    EXPECT_EQ(arena.budget_bytes, 8192);
    EXPECT_EQ(arena.live_bytes, 8192);
  }
  EXPECT_THAT(run.out, HasSubstr("pinned batches (jemalloc 5."));
  EXPECT_THAT(record->events, Not(IsEmpty()));
}

TEST_F(TrainGptTest, WritesTheTraceOfTheLastStep) {
  const std::string file = dir_.File("step.json");
  const ProgramResult run =
      RunSmall({"--trace", file, "--ranks", "2", "--json"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const Result<TraceFile> trace = ReadTraceFile(file);
  ASSERT_THAT(trace, IsOk());
  EXPECT_EQ(trace->rank, 0);
  EXPECT_EQ(trace->world, 2);
  // The embeddings first, then the block, the last norm at the end.
  ASSERT_EQ(trace->params.size(), 16u);
  EXPECT_EQ(trace->params.front(), "wte.weight");
  EXPECT_EQ(trace->params.back(), "ln_f.bias");
  const JsonValue said = (*ParseJson(run.out))["trace"];
  EXPECT_EQ(said["file"].text(), file);
  EXPECT_EQ(said["schema"].text(), "castor.trace/1");
  EXPECT_EQ(said["step"], 3);
  EXPECT_EQ(said["chunks"], static_cast<int64_t>(trace->chunks.size()));
  EXPECT_EQ(said["parameters"], 16);
  EXPECT_EQ(said["accesses"],
            static_cast<int64_t>(trace->step.accesses.size()));

  // Again, with other text: the trace does not depend on it, and replaces the
  // one that is there.
  const ProgramResult again = RunSmall(
      {"--trace", file, "--ranks", "2", "--seed", "7", "--steps", "1"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("trace of the last step: "));
  EXPECT_THAT(ReadTraceFile(file), IsOkAndHolds(*trace));
}

// What a hierarchical run records says itself how its ranks shared shards.
TEST_F(TrainGptTest, ATraceOfGroupsIsSimulatedWithoutFlags) {
  const std::string file = dir_.File("step.json");
  const ProgramResult run =
      RunSmall({"--trace", file, "--ranks", "4", "--shard-group", "2",
                "--optimizer-span", "world", "--steps", "2"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Result<TraceFile> trace = ReadTraceFile(file);
  ASSERT_THAT(trace, IsOk());
  EXPECT_EQ(trace->shard_group, 2);
  EXPECT_TRUE(trace->spans_world);
  const std::string machine = dir_.File("machine.json");
  std::ofstream(machine) << FormatTierModel({});
  const auto simulated = [&](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"simulate", file, "--machine", machine, "--dtype", "f32",
                 "--device-budget", "1MiB", "--host-budget", "4MiB"});
    const ProgramResult got =
        RunProgramToEnd(DataPath("tools/castor"), more, dir_.File("output"));
    EXPECT_EQ(got.exit_code, 0) << got.err;
    return got.out;
  };
  const std::string said = simulated({});
  EXPECT_THAT(said, HasSubstr("4 ranks in groups of 2, optimizer states over "
                              "all"));
  EXPECT_EQ(simulated({"--shard-group", "2", "--optimizer-span", "world"}),
            said);
  EXPECT_THAT(simulated({"--shard-group", "4", "--optimizer-span", "group"}),
              HasSubstr("4 ranks in groups of 4, F32 parameters, policy"));
}

TEST_F(TrainGptTest, ASignalEndsItAfterTheStepUnderWay) {
  for (int signal : {SIGINT, SIGTERM}) {
    RunningProgram program(Program(),
                           Args(Tight({"--ranks", "2", "--steps", "1000000",
                                       "--record", dir_.File("record")})),
                           dir_.File("output"));
    ASSERT_TRUE(program.WaitForError("step 5/"));
    program.Signal(signal);
    const ProgramResult run = program.Wait();
    EXPECT_EQ(run.exit_code, 6) << run.err;
    EXPECT_THAT(run.err, HasSubstr("asked to stop: ends after the step"));
    EXPECT_THAT(run.err, HasSubstr("stopped after step"));
    EXPECT_THAT(run.out, HasSubstr("weight digest: "));
    const auto record = ReadRecord(dir_.File("record"));
    ASSERT_THAT(record, IsOk());
    EXPECT_THAT(record->completeness, IsOk());
    ExpectNothingLeft();
  }
}

TEST_F(TrainGptTest, ARunAfterAKilledOneReclaimsItsFiles) {
  RunningProgram program(Program(), Args(Tight({"--steps", "1000000"})),
                         dir_.File("output"));
  ASSERT_TRUE(program.WaitForError("step 1/"));
  program.Signal(SIGKILL);
  EXPECT_EQ(program.Wait().signal, SIGKILL);
  EXPECT_FALSE(std::filesystem::is_empty(dir_.File("nvme")));
  const ProgramResult next = RunSmall(Tight({}));
  EXPECT_EQ(next.exit_code, 0) << next.err;
  ExpectNothingLeft();
}

TEST_F(TrainGptTest, TwoRunsShareAFolder) {
  RunningProgram other(Program(), Args(Tight({"--steps", "20"})),
                       dir_.File("output"));
  const ProgramResult one = RunSmall(Tight({"--steps", "20"}));
  const ProgramResult two = other.Wait();
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(DigestIn(one.out), DigestIn(two.out));
  ExpectNothingLeft();
}

TEST_F(TrainGptTest, HelpNamesEveryFlagOfTheIssue) {
  const ProgramResult run = Run({"--help"});
  EXPECT_EQ(run.exit_code, 0);
  for (const char* flag :
       {"--text",          "--layers",      "--heads", "--embd",   "--dtype",
        "--batch",         "--seq",         "--lr",    "--ranks",  "--stage",
        "--device-budget", "--host-budget", "--nvme",  "--chunk",  "--steps",
        "--seed",          "--accumulate",  "--clip",  "--record", "--layout",
        "--print-model",   "--machine",     "--trace", "--limit",  "--place",
        "--shard-group"}) {
    EXPECT_THAT(run.out, HasSubstr(flag));
  }
}

}  // namespace
}  // namespace castor
