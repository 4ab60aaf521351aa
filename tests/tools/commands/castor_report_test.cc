// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "chunk/text/json_value.h"
#include "offload/record/record_format.h"
#include "placement/run_event.h"
#include "tests/support/file_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/report/made_run.h"
#include "tests/tools/run_process.h"
#include "tools/commands/report_command.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// A record of steps 1 and 2 of one rank.
std::string TwoSteps(int64_t dropped = 0) {
  MadeRun run(1);
  run.At(0, 1).Step(0, 100).Gather(2, 10, 30, 5'000);
  run.At(0, 2).Step(100, 180).Gather(2, 110, 120, 5'000);
  std::string bytes;
  AppendRecordHeader(&bytes);
  AppendRankFrame(run.record.ranks[0], &bytes);
  AppendEventsFrame(run.record.events, dropped, &bytes);
  AppendEndFrame({1, 4, dropped}, &bytes);
  return bytes;
}

class RunReportTest : public testing::Test {
 protected:
  RunReportTest() {
    request_.file = dir_.File("run.rec");
    Write(TwoSteps());
  }

  void Write(std::string_view bytes) {
    std::ofstream(request_.file, std::ios::binary) << bytes;
  }
  Status Run() {
    out_.str("");
    notes_.str("");
    return RunReport(request_, Console{.out = out_, .err = notes_});
  }

  const TempDir dir_;
  ReportRequest request_;
  std::ostringstream out_;
  std::ostringstream notes_;
};

TEST_F(RunReportTest, ShowsACompleteRecord) {
  EXPECT_THAT(Run(), IsOk());
  EXPECT_THAT(out_.str(), StartsWith(request_.file));
  EXPECT_THAT(out_.str(), HasSubstr("Steps 1-2"));
  EXPECT_THAT(notes_.str(), IsEmpty());
  request_.form = Form::kPlain;
  EXPECT_THAT(Run(), IsOk());
  EXPECT_THAT(out_.str(), HasSubstr("link\tall-gather\t2\t10000\t30000\t0\n"));
  request_.form = Form::kJson;
  EXPECT_THAT(Run(), IsOk());
  EXPECT_EQ(ParseJson(out_.str()).value()["complete_steps"], 2);
}

TEST_F(RunReportTest, TheSameRecordGivesTheSameBytes) {
  EXPECT_THAT(Run(), IsOk());
  const std::string first = out_.str();
  EXPECT_THAT(Run(), IsOk());
  EXPECT_EQ(out_.str(), first);
}

TEST_F(RunReportTest, ShowsWhatACutRecordHoldsAndSaysWhereItEnds) {
  const std::string whole = TwoSteps();
  Write(whole.substr(0, whole.size() - 1));
  request_.form = Form::kJson;
  const Status cut = Run();
  EXPECT_THAT(cut, StatusIs(ErrorCode::kStoppedEarly, HasSubstr("byte")));
  EXPECT_EQ(ExitCode(cut.code()), 6);
  const JsonValue report = ParseJson(out_.str()).value();
  EXPECT_EQ(report["record"]["complete"], false);
  EXPECT_EQ(report["links"][0]["moved_bytes"], 10'000);
}

TEST_F(RunReportTest, RefusesWhatIsNoRecord) {
  Write("gibberish");
  const Status status = Run();
  EXPECT_THAT(status, StatusIs(ErrorCode::kMalformed));
  EXPECT_EQ(ExitCode(status.code()), 4);
  EXPECT_THAT(out_.str(), IsEmpty());
  request_.file = dir_.File("missing");
  EXPECT_THAT(Run(), StatusIs(ErrorCode::kInvalidArgument));
}

TEST_F(RunReportTest, SaysWhenEventsWereDropped) {
  Write(TwoSteps(6));
  EXPECT_THAT(Run(), IsOk());
  EXPECT_THAT(notes_.str(), HasSubstr("6 of 10 events were dropped"));
  EXPECT_THAT(out_.str(), HasSubstr("6 dropped"));
}

TEST_F(RunReportTest, LooksAtTheStepsAskedFor) {
  request_.steps = {2, 2};
  request_.form = Form::kJson;
  EXPECT_THAT(Run(), IsOk());
  EXPECT_EQ(ParseJson(out_.str()).value()["links"][0]["moved_bytes"], 5'000);
  request_.steps = {3, 9};
  EXPECT_THAT(Run(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("steps 1 to 2")));
  EXPECT_THAT(out_.str(), IsEmpty());
}

TEST_F(RunReportTest, ExportsForPerfetto) {
  request_.chrome = dir_.File("trace.json");
  EXPECT_THAT(Run(), IsOk());
  EXPECT_THAT(notes_.str(), HasSubstr("ui.perfetto.dev"));
  const JsonValue trace = ParseJson(FileText(request_.chrome)).value();
  EXPECT_FALSE(trace["traceEvents"].empty());
}

TEST_F(RunReportTest, ExportsForTheMemoryViewerOfPyTorch) {
  request_.chrome = dir_.File("trace.json");
  request_.memory_viz = dir_.File("memory.pickle");
  EXPECT_THAT(Run(), IsOk());
  EXPECT_THAT(notes_.str(), HasSubstr("trace.json: open it in https://ui"));
  EXPECT_THAT(notes_.str(), HasSubstr("pytorch.org/memory_viz"));
  EXPECT_FALSE(FileText(request_.chrome).empty());
  const std::string pickle = FileText(request_.memory_viz);
  EXPECT_THAT(pickle, HasSubstr("device_traces"));
  EXPECT_THAT(pickle, HasSubstr("chunk 2: layer.2 (fetched ahead)"));
  request_.memory_viz = "/dev/full";
  EXPECT_THAT(Run(), StatusIs(ErrorCode::kIoError, HasSubstr("snapshot")));
}

TEST_F(RunReportTest, AnExportThatFailsLeavesNothingBehind) {
  request_.chrome = dir_.File("no/folder.json");
  EXPECT_THAT(Run(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("No such file")));
  EXPECT_THAT(out_.str(), HasSubstr("Steps 1-2"));
  request_.chrome = dir_.File("pipe");
  ASSERT_EQ(mkfifo(request_.chrome.c_str(), 0600), 0);
  EXPECT_THAT(Run(), StatusIs(ErrorCode::kInvalidArgument,
                              HasSubstr("nobody reads this pipe")));
  request_.chrome = "/dev/full";
  EXPECT_THAT(Run(), StatusIs(ErrorCode::kIoError, HasSubstr("No space")));
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

TEST_F(RunReportTest, AnExportNeverOverwritesTheRecord) {
  request_.chrome = request_.file;
  EXPECT_THAT(Run(), StatusIs(ErrorCode::kInvalidArgument));
  request_.chrome.clear();
  request_.memory_viz = request_.file;
  EXPECT_THAT(
      Run(), StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--memory-viz ")));
  EXPECT_EQ(std::filesystem::file_size(request_.file), TwoSteps().size());
}

// The same as a process with streams of its own.
class CastorReportTest : public testing::Test {
 protected:
  CastorReportTest() { std::ofstream(file_, std::ios::binary) << TwoSteps(); }

  ProcessOutcome Report(const std::vector<std::string>& args) {
    std::vector<std::string> command = {"tools/castor", "report"};
    command.insert(command.end(), args.begin(), args.end());
    return RunProcess(command);
  }

  const TempDir dir_;
  const std::string file_ = dir_.File("run.rec");
};

TEST_F(CastorReportTest, PrintsAsciiAndTheSameBytesIntoAPipe) {
  const ProcessOutcome outcome = Report({file_, "--step", "2"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, StartsWith(file_ + ": 1 rank, ZeRO stage 3"));
  EXPECT_THAT(outcome.err, IsEmpty());
  for (const char c : outcome.out) {
    EXPECT_LT(static_cast<unsigned char>(c), 128);
  }
  EXPECT_EQ(Report({file_, "--steps", "2-2"}).out, outcome.out);
}

TEST_F(CastorReportTest, MistakesAreExit2) {
  const std::vector<std::vector<std::string>> mistakes = {
      {},
      {dir_.File("missing")},
      {file_, "--jsn"},
      {file_, "--json", "--plain"},
      {file_, "--step", "0"},
      {file_, "--step", "1", "--steps", "1-2"},
      {file_, "--steps", "2-1"},
      {file_, "--steps", "7-9"},
      {file_, "--chrome", file_},
      {file_, "--memory-viz", file_},
      {file_, "--chrome", "a", "--memory-viz", "./a"},
      {file_, file_},
  };
  for (const std::vector<std::string>& args : mistakes) {
    const ProcessOutcome outcome = Report(args);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("castor report: "));
    EXPECT_THAT(outcome.out, IsEmpty());
  }
}

TEST_F(CastorReportTest, AFullDiskIsSaid) {
  const ProcessOutcome outcome =
      RunProcessInto({"tools/castor", "report", file_}, "/dev/full");
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_THAT(outcome.err, HasSubstr("could not be written"));
}

}  // namespace
}  // namespace castor
