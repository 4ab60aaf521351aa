// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// `castor diff` as a process: of runs, plans, documents and layouts, and its
// exit codes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "chunk/text/json_value.h"
#include "offload/record/record_writer.h"
#include "placement/run_event.h"
#include "tests/support/file_text.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/report/made_run.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class CastorDiffTest : public testing::Test {
 protected:
  CastorDiffTest() {
    std::ofstream(model_) << "a\t1024\tF32\nb\t2048\tF32\nc\t1024\tF32\n";
  }

  // Four steps of 100 us, in which chunk 1 comes from a tier in `stall` us.
  // `guesses`: its new parameters wait for the norm on the drive.
  std::string Record(const std::string& name, Tier from, int64_t stall,
                     bool guesses = false) {
    MadeRun run(1);
    for (int32_t step = 1; step <= 4; ++step) {
      const int64_t begin = 100 * (step - 1);
      run.At(0, step).Step(begin, begin + 80 + stall);
      if (from == Tier::kNvme) {
        run.Move(Tier::kNvme, Tier::kHost, begin, begin + 5, 4096,
                 RunCause::kPrefetch, 1);
      }
      run.Move(Tier::kHost, Tier::kDevice, begin + 5, begin + 9, 1000,
               RunCause::kPrefetch, 1);
      run.Stall(RunCause::kPrefetch, 1, begin + 1, begin + 1 + stall);
      run.TierBytes(Tier::kDevice, begin + 10, 50 + stall);
      run.TierBytes(Tier::kHost, begin + 11, 5);
      if (guesses) {
        run.Move(Tier::kHost, Tier::kNvme, begin + 60, begin + 65, 4096,
                 RunCause::kGuess, 1);
        run.Move(Tier::kNvme, Tier::kHost, begin + 70, begin + 75, 4096,
                 RunCause::kGuess, 1);
      }
      run.Release(1, begin + 50, RunCause::kStale);
    }
    const std::string file = dir_.File(name);
    auto recorder = FileRecorder::Create(file);
    EXPECT_TRUE(recorder.ok());
    (*recorder)->AddRank(run.record.ranks[0]);
    for (const RunEvent& event : run.record.events) (*recorder)->Record(event);
    EXPECT_TRUE((*recorder)->Close().ok());
    return file;
  }

  std::string Plan(const std::string& name, const std::string& budget) {
    const std::string file = dir_.File(name);
    const ProcessOutcome made = RunProcess(
        {"tools/castor", "plan", model_, "--order", "file", "--working-set",
         "module", "--chunk", "8KiB", "--device-budget", budget,
         "--host-budget", "1MiB", "--json", "-o", file});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    std::ofstream(file + ".report") << made.out;
    return file;
  }

  std::string Layout(const std::string& name, const std::string& chunk) {
    const std::string file = dir_.File(name);
    const ProcessOutcome made = RunProcess(
        {"tools/castor", "search", model_, "--order", "file", "--min", chunk,
         "--max", chunk, "--mode", "uniform", "-o", file});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return file;
  }

  static ProcessOutcome Diff(const std::vector<std::string>& args) {
    std::vector<std::string> command = {"tools/castor", "diff"};
    command.insert(command.end(), args.begin(), args.end());
    return RunProcess(command);
  }

  // The row of that name of a document.
  static JsonValue Row(const JsonValue& json, const std::string& section,
                       const std::string& what) {
    for (const JsonValue& each : json["sections"]) {
      if (each["name"].text() != section) continue;
      for (const JsonValue& row : each["rows"]) {
        if (row["what"].text() == what) return row;
      }
    }
    ADD_FAILURE() << section << ": " << what;
    return JsonValue();
  }

  const TempDir dir_;
  const std::string model_ = dir_.File("model.tsv");
};

TEST_F(CastorDiffTest, PutsRunsNextToEachOther) {
  const std::string a = Record("a.rec", Tier::kHost, 10);
  const std::string b = Record("b.rec", Tier::kNvme, 20);
  const ProcessOutcome page = Diff({a, b});
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out,
              AllOf(ContainsRegex("a step +90.0 us +100 us +[+]11.11 %"),
                    ContainsRegex("prefetch +10.0 us +20.0 us +[+]100.00 %"),
                    ContainsRegex("nvme -> host +0 B +4 KiB +differs"),
                    ContainsRegex("host budget +- +- +equal"),
                    ContainsRegex("chunk 1 param +host +nvme +differs")));
  const ProcessOutcome document = Diff({a, b, "--json"});
  ASSERT_EQ(document.exit_code, 0) << document.err;
  const JsonValue json = ParseJson(document.out).value();
  EXPECT_EQ(json["schema"], "castor.diff/1");
  EXPECT_EQ(json["kind"], "runs");
  EXPECT_FALSE(json["equal"].boolean());
  EXPECT_EQ(Row(json, "time", "a step")["b_ns"], 100'000);
  EXPECT_EQ(Row(json, "tiers", "device peak")["a_bytes"], 60);
  EXPECT_EQ(Row(json, "links", "host -> device")["equal"].boolean(), true);
  const JsonValue same = ParseJson(Diff({a, a, "--json"}).out).value();
  EXPECT_TRUE(same["equal"].boolean());
  EXPECT_THAT(Diff({a, b, "--steps", "1-2", "--plain"}).out,
              HasSubstr("homes\tchunk 1 param\thost\tnvme\n"));
}

TEST_F(CastorDiffTest, AHomeIsNotWhereAGuessWaits) {
  const std::string guessed = Record("a.rec", Tier::kHost, 10, true);
  const std::string nvme = Record("b.rec", Tier::kNvme, 20);
  EXPECT_THAT(Diff({guessed, nvme, "--plain"}).out,
              HasSubstr("homes\tchunk 1 param\thost\tnvme\n"));
}

TEST_F(CastorDiffTest, PutsPlansNextToEachOther) {
  const std::string a = Plan("a.json", "40KiB");
  const std::string b = Plan("b.json", "64KiB");
  const ProcessOutcome files = Diff({a, b});
  EXPECT_EQ(files.exit_code, 0) << files.err;
  EXPECT_THAT(files.out, ContainsRegex("device_budget_bytes +40 KiB +64 KiB"));
  const ProcessOutcome reports = Diff({a + ".report", b + ".report", "--json"});
  ASSERT_EQ(reports.exit_code, 0) << reports.err;
  const JsonValue json = ParseJson(reports.out).value();
  EXPECT_EQ(json["kind"], "plans");
  EXPECT_EQ(Row(json, "tiers", "device budget_bytes")["a_bytes"], 40 * 1024);
  EXPECT_LE(Row(json, "tiers", "device planned_bytes")["a_bytes"].integer(),
            Row(json, "tiers", "device planned_bytes")["b_bytes"].integer());
}

// Bytes of other programs' making, which no run has.
TEST_F(CastorDiffTest, ComparesIntegersOfAnySize) {
  const std::string report = FileText(Plan("a.json", "40KiB") + ".report");
  const std::string key = "\"planned_bytes\":";
  const auto with = [&](const std::string& name, const std::string& number) {
    std::string text = report;
    const size_t at = text.find(key) + key.size();
    text.replace(at, text.find_first_of(",}", at) - at, number);
    std::ofstream(dir_.File(name)) << text;
    return dir_.File(name);
  };
  const ProcessOutcome outcome = Diff(
      {with("x", "9223372036854775808"), with("y", "18446744073709551615")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("planned_bytes"));
}

TEST_F(CastorDiffTest, PutsLayoutsNextToEachOther) {
  const std::string a = Layout("a.json", "8KiB");
  const std::string b = Layout("b.json", "16KiB");
  const ProcessOutcome page = Diff({a, b});
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out,
              AllOf(ContainsRegex("chunks +3 +1 +-66.67 %"),
                    ContainsRegex("largest chunk +8 KiB +16 KiB"),
                    ContainsRegex("c +chunk 2 at 0 +chunk 0 at 3072")));
}

TEST_F(CastorDiffTest, EndsWithTheExitCodeOfWhatIsWrong) {
  const std::string run = Record("a.rec", Tier::kHost, 10);
  const std::string plan = Plan("a.json", "40KiB");
  const std::string broken = dir_.File("broken.json");
  std::ofstream(broken) << R"({"schema": "castor.plan/1", "world": )";
  const std::string trace = dir_.File("trace.json");
  std::ofstream(trace) << R"({"schema": "castor.trace/1", "rank": 0})";
  const struct {
    std::vector<std::string> args;
    int exit_code;
    const char* message;
  } kCases[] = {
      {{}, 2, "A is missing"},
      {{run}, 2, "B is missing"},
      {{run, dir_.File("missing")}, 2, "missing"},
      {{run, plan}, 2, "is the record of a run and"},
      {{run, model_}, 4, "is neither the record of a run nor a plan"},
      {{plan, broken}, 4, "broken.json"},
      {{trace, trace}, 2, "is the trace of a step, and two of one kind"},
      {{plan, plan, "--steps", "1"}, 2, "--steps is for records of runs"},
      {{run, run, "--steps", "8-9"}, 2, "its last one is 4"},
      {{run, run, "--json", "--plain"}, 2, "exclude each other"}};
  for (const auto& each : kCases) {
    const ProcessOutcome outcome = Diff(each.args);
    EXPECT_EQ(outcome.exit_code, each.exit_code) << outcome.err;
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err,
                AllOf(StartsWith("castor diff: "), HasSubstr(each.message)));
  }
  std::filesystem::resize_file(run, std::filesystem::file_size(run) - 1);
  const ProcessOutcome cut = Diff({run, run});
  EXPECT_EQ(cut.exit_code, 6);
  EXPECT_THAT(cut.out, HasSubstr("a step"));
}

}  // namespace
}  // namespace castor
