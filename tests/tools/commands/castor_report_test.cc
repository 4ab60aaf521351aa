// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// `castor report` as a user runs it: a process with its own streams.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "chunk/base/json_value.h"
#include "offload/record/record_writer.h"
#include "placement/run_event.h"
#include "tests/support/file_text.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/report/made_run.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class CastorReportTest : public testing::Test {
 protected:
  CastorReportTest() {
    MadeRun run(1);
    run.At(0, 1).Step(0, 100).Gather(2, 10, 30, 5'000);
    run.At(0, 2).Step(100, 180).Gather(2, 110, 120, 5'000);
    run.Stall(RunCause::kPrefetch, 2, 115, 120);
    auto recorder = FileRecorder::Create(file_);
    EXPECT_TRUE(recorder.ok());
    (*recorder)->AddRank(run.record.ranks[0]);
    for (const RunEvent& event : run.record.events) (*recorder)->Record(event);
    EXPECT_TRUE((*recorder)->Close().ok());
  }

  ProcessOutcome Report(const std::vector<std::string>& args) {
    std::vector<std::string> command = {"tools/castor", "report"};
    command.insert(command.end(), args.begin(), args.end());
    return RunProcess(command);
  }

  const TempDir dir_;
  const std::string file_ = dir_.File("run.rec");
};

TEST_F(CastorReportTest, ShowsARecord) {
  const ProcessOutcome outcome = Report({file_});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, StartsWith(file_ + ": 1 rank, ZeRO stage 3"));
  EXPECT_THAT(outcome.out, HasSubstr("all-gather"));
  EXPECT_THAT(outcome.err, IsEmpty());
  // Into a pipe, plain ASCII and the same bytes each time.
  for (const char c : outcome.out)
    EXPECT_LT(static_cast<unsigned char>(c), 128);
  EXPECT_EQ(Report({file_}).out, outcome.out);
}

TEST_F(CastorReportTest, PrintsForPrograms) {
  const ProcessOutcome document = Report({file_, "--json"});
  EXPECT_EQ(document.exit_code, 0);
  EXPECT_EQ(ParseJson(document.out).value()["schema"], "castor.report/1");
  const ProcessOutcome plain = Report({file_, "--plain", "--step", "2"});
  EXPECT_EQ(plain.exit_code, 0);
  EXPECT_THAT(plain.out, HasSubstr("link\tall-gather\t1\t5000\t10000\t0\n"));
}

TEST_F(CastorReportTest, ExportsATrace) {
  const std::string trace = dir_.File("trace.json");
  const ProcessOutcome outcome =
      Report({file_, "--chrome", trace, "--steps", "1-1"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("ui.perfetto.dev"));
  const JsonValue document = ParseJson(FileText(trace)).value();
  int slices = 0;
  for (const JsonValue& event : document["traceEvents"]) {
    slices += event["ph"] == "X" ? 1 : 0;
  }
  EXPECT_EQ(slices, 2);
}

TEST_F(CastorReportTest, ACutRecordIsShownAndSaidWithExit6) {
  std::filesystem::resize_file(file_, std::filesystem::file_size(file_) - 1);
  const ProcessOutcome outcome = Report({file_, "--json"});
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_THAT(outcome.err, HasSubstr("cut off inside a frame"));
  EXPECT_EQ(ParseJson(outcome.out).value()["complete_steps"], 2);
}

TEST_F(CastorReportTest, GarbageIsRefusedWithExit4) {
  std::ofstream(file_) << "{\"not\": \"a record\"}";
  const ProcessOutcome outcome = Report({file_});
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err,
              HasSubstr("\"" + file_ + "\": this is not a record"));
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
