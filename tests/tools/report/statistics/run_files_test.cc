// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/statistics/run_files.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/record/record_writer.h"
#include "placement/run_event.h"
#include "tests/offload/record/random_events.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::ElementsAre;

class RunFilesTest : public testing::Test {
 protected:
  // A rank with two steps that begin at `begin_ns`.
  void Write(const std::string& file, int rank, int world, int64_t begin_ns,
             int chunks = 3) {
    auto recorder = FileRecorder::Create(dir_.File(file));
    ASSERT_THAT(recorder, IsOk());
    (*recorder)->AddRank(SomeRank(rank, world, chunks));
    for (int32_t step = 1; step <= 2; ++step) {
      RunEvent event;
      event.rank = rank;
      event.step = step;
      event.begin_ns = begin_ns + 100 * step;
      event.end_ns = event.begin_ns + 90;
      (*recorder)->Record(event);
    }
    (*recorder)->AddDocument({rank, 1, "{\"schema\": \"a/1\"}"});
    ASSERT_THAT((*recorder)->Close(), IsOk());
  }
  std::string Run() const { return dir_.File("run"); }

  TempDir dir_;
};

TEST_F(RunFilesTest, RanksThatAreProcessesAreOneRun) {
  Write("run.0", 0, 3, 1000);
  Write("run.1", 1, 3, 1010);
  Write("run.2", 2, 3, 990);
  EXPECT_THAT(RecordFilesOf(Run()),
              ElementsAre(Run() + ".0", Run() + ".1", Run() + ".2"));
  ASSERT_OK_AND_ASSIGN(const RunRecord run, ReadRun(Run()));
  EXPECT_THAT(run.completeness, IsOk());
  ASSERT_EQ(run.ranks.size(), 3u);
  EXPECT_EQ(run.ranks[2].rank, 2);
  EXPECT_EQ(run.events.size(), 6u);
  EXPECT_EQ(run.documents.size(), 3u);
  EXPECT_EQ(run.file_bytes,
            3 * static_cast<int64_t>(std::filesystem::file_size(Run() + ".0")));
  // One by itself is one.
  ASSERT_OK_AND_ASSIGN(const RunRecord one, ReadRun(Run() + ".1"));
  EXPECT_EQ(one.ranks.size(), 1u);
}

TEST_F(RunFilesTest, AFileOfTheNameItselfIsTheWholeRun) {
  Write("run", 0, 1, 0);
  EXPECT_THAT(RecordFilesOf(Run()), ElementsAre(Run()));
  EXPECT_THAT(ReadRun(Run()), IsOk());
  // Which of the two the user means cannot be known.
  Write("run.0", 0, 1, 0);
  EXPECT_THAT(ReadRun(Run()),
              StatusIs(ErrorCode::kInvalidArgument,
                       testing::HasSubstr("are records of two runs")));
  EXPECT_THAT(ReadRun(dir_.File("none")),
              StatusIs(ErrorCode::kInvalidArgument));
}

TEST_F(RunFilesTest, OneThatWasCutOffMakesAllIncomplete) {
  Write("run.0", 0, 2, 0);
  Write("run.1", 1, 2, 0);
  std::filesystem::resize_file(Run() + ".1",
                               std::filesystem::file_size(Run() + ".1") - 1);
  ASSERT_OK_AND_ASSIGN(const RunRecord run, ReadRun(Run()));
  EXPECT_THAT(run.completeness,
              StatusIs(ErrorCode::kStoppedEarly, testing::HasSubstr("run.1")));
}

TEST_F(RunFilesTest, FilesOfSeveralRunsAreRefused) {
  Write("run.0", 0, 2, 0);
  Write("run.1", 0, 2, 0);
  EXPECT_THAT(ReadRun(Run()), StatusIs(ErrorCode::kInvalidArgument,
                                       testing::HasSubstr("both of rank 0")));
  Write("run.1", 1, 3, 0);
  EXPECT_THAT(ReadRun(Run()),
              StatusIs(ErrorCode::kInvalidArgument,
                       testing::HasSubstr("is of another run than")));
  Write("run.1", 1, 2, 0, 4);
  EXPECT_THAT(ReadRun(Run()), StatusIs(ErrorCode::kInvalidArgument,
                                       testing::HasSubstr("and 4 chunks")));
  Write("run.1", 1, 2, 5'000'000);
  EXPECT_THAT(ReadRun(Run()), StatusIs(ErrorCode::kInvalidArgument,
                                       testing::HasSubstr("clocks")));
}

}  // namespace
}  // namespace castor
