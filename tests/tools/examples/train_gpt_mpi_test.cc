// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The example trainer as mpirun starts it, a process for each rank: the same
// weights as with threads, one voice, and what is said when a rank dies or
// hangs.

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/text/json_value.h"
#include "collectives/answers/plan_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/record/record_reader.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/examples/train_gpt_runs.h"
#include "tools/bench/support/drawn_plans.h"
#include "tools/commands/plan/plan_outcome.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

class TrainGptMpiTest : public testing::Test {
 protected:
  TrainGptMpiTest() {
    std::filesystem::create_directory(dir_.File("output"));
    std::filesystem::create_directory(dir_.File("nvme"));
    WriteTrainingText(dir_.File("text"));
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    // Open MPI keeps its sockets here, whose names may not be long.
    setenv("TMPDIR", "/tmp", 1);
  }

  static std::string Program() { return DataPath("tools/examples/train_gpt"); }
  // A small model, and budgets that leave something for the drive; what `more`
  // sets, it sets.
  std::vector<std::string> Args(const std::vector<std::string>& more) const {
    const std::pair<std::string, std::string> small[] = {
        {"--text", dir_.File("text")},
        {"--nvme", dir_.File("nvme")},
        {"--layers", "2"},
        {"--heads", "2"},
        {"--embd", "128"},
        {"--seq", "16"},
        {"--chunk", "128KiB"},
        {"--dtype", "bf16"},
        {"--device-budget", "704KiB"},
        {"--host-budget", "384KiB"}};
    std::vector<std::string> args = more;
    for (const auto& [flag, value] : small) {
      if (std::find(more.begin(), more.end(), flag) != more.end()) continue;
      args.insert(args.end(), {flag, value});
    }
    return args;
  }
  std::vector<std::string> MpiArgs(int ranks,
                                   const std::vector<std::string>& more) const {
    std::vector<std::string> args = {"--oversubscribe", "-n",
                                     std::to_string(ranks), Program()};
    const std::vector<std::string> own = Args(more);
    args.insert(args.end(), own.begin(), own.end());
    return args;
  }
  ProgramResult RunThreads(const std::vector<std::string>& more) const {
    return RunProgramToEnd(Program(), Args(more), dir_.File("output"));
  }
  ProgramResult RunProcesses(int ranks,
                             const std::vector<std::string>& more) const {
    return RunProgramToEnd("/usr/bin/mpirun", MpiArgs(ranks, more),
                           dir_.File("output"));
  }

  // The rank that process `pid` is.
  static int RankOf(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/environ");
    std::ostringstream text;
    text << file.rdbuf();
    const std::string name = "OMPI_COMM_WORLD_RANK=";
    const size_t at = text.str().find(name);
    return at == std::string::npos
               ? -1
               : std::atoi(text.str().c_str() + at + name.size());
  }

  // Starts three ranks that train for ever, and stops rank 1 amid a step.
  // Sets `victim`, and `took` to what the steps after the first did.
  std::unique_ptr<RunningProgram> StartAndStopOne(
      const std::vector<std::string>& more, pid_t* victim,
      std::chrono::nanoseconds* took = nullptr) {
    std::vector<std::string> args = {
        "--steps",         "1000000", "--accumulate",  "8",
        "--device-budget", "2MiB",    "--host-budget", "2MiB"};
    args.insert(args.end(), more.begin(), more.end());
    auto run = std::make_unique<RunningProgram>(
        "/usr/bin/mpirun", MpiArgs(3, args), dir_.File("output"));
    *victim = -1;
    run->WaitForError("step 1/");
    const auto begin = std::chrono::steady_clock::now();
    if (!run->WaitForError("step 5/")) {
      ADD_FAILURE() << run->Wait().err;
      return run;
    }
    for (const pid_t child : run->Children()) {
      if (RankOf(child) == 1) *victim = child;
    }
    if (*victim > 0) kill(*victim, SIGSTOP);
    if (took != nullptr) *took = std::chrono::steady_clock::now() - begin;
    return run;
  }

  // Each surviving rank has a line that names it, the chunk, the moment where
  // the engine knows one, and rank 1, which it waited for.
  static void ExpectSurvivorsSpeak(const std::string& err) {
    std::istringstream lines(err);
    bool said[3] = {};
    const std::regex what(
        "rank ([02]) of 3.*rank 1 .*operation [0-9]+ of the world.*of chunk "
        "[0-9]+");
    for (std::string line; std::getline(lines, line);) {
      std::smatch match;
      if (std::regex_search(line, match, what)) {
        said[std::stoi(match[1].str())] = true;
      }
    }
    EXPECT_TRUE(said[0] && said[2]) << err;
  }

  TempDir dir_;
};

TEST_F(TrainGptMpiTest, ProcessesTrainAsThreadsDo) {
  const std::vector<std::string> run = {"--steps", "3", "--json"};
  std::vector<std::string> threads = run;
  threads.insert(threads.end(), {"--ranks", "4"});
  std::vector<std::string> processes = run;
  processes.insert(processes.end(), {"--record", dir_.File("run.rec")});
  const ProgramResult by_threads = RunThreads(threads);
  const ProgramResult by_processes = RunProcesses(4, processes);
  ASSERT_EQ(by_threads.exit_code, 0) << by_threads.err;
  ASSERT_EQ(by_processes.exit_code, 0) << by_processes.err;
  const JsonValue expected = *ParseJson(by_threads.out);
  const Result<JsonValue> parsed = ParseJson(by_processes.out);
  ASSERT_THAT(parsed, IsOk()) << by_processes.out;
  const JsonValue& json = *parsed;
  for (const char* same :
       {"weight_digest", "losses", "grad_norms", "ranks", "steps", "chunks",
        "reduce_scatters", "mean_loss_last"}) {
    EXPECT_EQ(json[same].Dump(), expected[same].Dump()) << same;
  }
  EXPECT_GT(json["tiers"]["nvme"]["home_bytes"].integer(), 0);
  // In groups of two, too.
  const ProgramResult grouped =
      RunProcesses(4, {"--steps", "3", "--json", "--shard-group", "2",
                       "--optimizer-span", "world"});
  ASSERT_EQ(grouped.exit_code, 0) << grouped.err;
  EXPECT_EQ((*ParseJson(grouped.out))["weight_digest"].Dump(),
            expected["weight_digest"].Dump());
  // One voice.
  EXPECT_EQ(CountOf(by_processes.err, "step 3/3"), 1u) << by_processes.err;
  EXPECT_EQ(CountOf(by_processes.err, "nvme folder"), 1u) << by_processes.err;
  EXPECT_TRUE(std::filesystem::is_empty(dir_.File("nvme")));
  for (int rank = 0; rank < 4; ++rank) {
    const auto record =
        ReadRecord(dir_.File("run.rec." + std::to_string(rank)));
    ASSERT_THAT(record, IsOk());
    EXPECT_THAT(record->completeness, IsOk());
    ASSERT_EQ(record->ranks.size(), 1u);
  }
}

TEST_F(TrainGptMpiTest, RefusesContradictionsAndFailsAlike) {
  const ProgramResult three = RunProcesses(2, {"--ranks", "3"});
  EXPECT_EQ(three.exit_code, 2) << three.err;
  EXPECT_THAT(three.err, AllOf(HasSubstr("number of ranks was given as 3"),
                               HasSubstr("Open MPI"), HasSubstr("says 2")));
  // One process is no reason to train others as threads.
  const ProgramResult one = RunProcesses(1, {"--ranks", "3"});
  EXPECT_EQ(one.exit_code, 2) << one.err;
  EXPECT_THAT(one.err, AllOf(HasSubstr("number of ranks was given as 3"),
                             HasSubstr("Open MPI"), HasSubstr("says 1")));
  // Each says what all found, and how it ends is what one process would end
  // with.
  const ProgramResult small =
      RunProcesses(2, {"--device-budget", "64KiB", "--steps", "1"});
  EXPECT_EQ(small.exit_code, 3) << small.err;
  EXPECT_THAT(small.err, HasSubstr("device budget"));
}

// Open MPI ends all ranks when one dies: each has a word left.
// What decides the steps of a run is compared before the first of them.
TEST_F(TrainGptMpiTest, RanksThatWereToldOtherwiseMakeNoStep) {
  std::ifstream text(dir_.File("text"));
  std::string other((std::istreambuf_iterator<char>(text)), {});
  other[100] ^= 1;
  std::ofstream(dir_.File("other")) << other;  // of the same size
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--text", dir_.File("other")}, "the text differs between rank 0 and"},
      {{"--save", dir_.File("saved")}, "--save differs between rank 0 and"},
      {{"--digest-at", "2"}, "--digest-at differs between rank 0 and rank 1"}};
  for (const auto& [second, why] : cases) {
    std::vector<std::string> args = {"--oversubscribe", "-n", "1", Program()};
    for (const std::string& arg : Args({"--steps", "3"})) args.push_back(arg);
    args.insert(args.end(), {":", "-n", "1", Program()});
    std::vector<std::string> told = {"--steps", "3"};
    told.insert(told.end(), second.begin(), second.end());
    for (const std::string& arg : Args(told)) args.push_back(arg);
    const ProgramResult run =
        RunProgramToEnd("/usr/bin/mpirun", args, dir_.File("output"));
    EXPECT_NE(run.exit_code, 0);
    EXPECT_THAT(run.err, AllOf(HasSubstr(why), HasSubstr("start all ranks"),
                               Not(HasSubstr("step 1/"))));
  }
}

TEST_F(TrainGptMpiTest, SurvivorsOfADeadRankNameIt) {
  pid_t victim = -1;
  std::chrono::nanoseconds took;
  const auto run = StartAndStopOne({}, &victim, &took);
  ASSERT_GT(victim, 0);
  // So that the others come to wait for it, and ask each other whether they do:
  // less than a step and some messages.
  std::this_thread::sleep_for(
      std::max<std::chrono::nanoseconds>(took, std::chrono::milliseconds(700)));
  const auto killed = std::chrono::steady_clock::now();
  kill(victim, SIGKILL);
  const ProgramResult result = run->Wait();
  EXPECT_LT(std::chrono::steady_clock::now() - killed,
            std::chrono::seconds(20));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("was told to end (SIGTERM)"),
                                Not(HasSubstr("waited for no rank"))));
  ExpectSurvivorsSpeak(result.err);
}

TEST_F(TrainGptMpiTest, SurvivorsOfARankThatHangsNameItInTime) {
  pid_t victim = -1;
  const auto run = StartAndStopOne({"--rank-timeout", "1"}, &victim);
  ASSERT_GT(victim, 0);
  const auto stopped = std::chrono::steady_clock::now();
  const ProgramResult result = run->Wait();
  EXPECT_LT(std::chrono::steady_clock::now() - stopped,
            std::chrono::seconds(25));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("train_gpt: rank "));
  ExpectSurvivorsSpeak(result.err);
  // mpirun ends it with the others.
  EXPECT_TRUE(ProcessEnds(victim));
}

// A plan for processes has room for what these exchange in, to the byte.
TEST_F(TrainGptMpiTest, FollowsAPlanForProcessesAtTheLeastBudgetThatFits) {
  DrawnPlan drawn;
  drawn.model = {
      .vocab = 256, .context = 16, .layers = 2, .heads = 2, .embd = 64};
  drawn.flags.world = 2;
  drawn.flags.engine.chunk_size = KiB(64);
  drawn.flags.host_budget = MiB(8);
  drawn.flags.processes = true;
  const Result<PlanSubject> subject = SubjectOf(drawn, dir_.path().string());
  ASSERT_THAT(subject, IsOk());
  const Result<std::optional<Bytes>> least =
      LeastDeviceBudget(*subject, drawn.flags);
  ASSERT_THAT(least, IsOk());
  ASSERT_TRUE(least->has_value());
  drawn.flags.device_budget = *least;
  const auto follow = [&](Bytes less) {
    const Result<PlanOutcome> outcome = MakePlan(*subject, drawn.flags);
    EXPECT_THAT(outcome, IsOk());
    PlanFile plan = PlanFileOf(*subject, *outcome);
    plan.engine.device_budget -= less;
    std::ofstream(dir_.File("plan.json")) << WritePlan(plan);
    return RunProgramToEnd(
        "/usr/bin/mpirun",
        {"--oversubscribe", "-n", "2", Program(), "--text", dir_.File("text"),
         "--layers", "2", "--heads", "2", "--embd", "64", "--seq", "16",
         "--steps", "2", "--plan", dir_.File("plan.json")},
        dir_.File("output"));
  };
  const ProgramResult trains = follow(Bytes(0));
  EXPECT_EQ(trains.exit_code, 0) << trains.err;
  const ProgramResult refuses = follow(Bytes(1));
  EXPECT_EQ(refuses.exit_code, 3) << refuses.err;
  EXPECT_THAT(refuses.err, HasSubstr("raise the device budget by"));
  drawn.flags.processes = false;
  const ProgramResult threads = follow(Bytes(0));
  EXPECT_EQ(threads.exit_code, 2) << threads.err;
  EXPECT_THAT(threads.err, HasSubstr("castor plan --processes"));
}

}  // namespace
}  // namespace castor
