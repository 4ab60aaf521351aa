// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a recorder does when its disk is full.

#include <sys/resource.h>

#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/record/record_reader.h"
#include "offload/record/record_writer.h"
#include "tests/offload/record/random_events.h"
#include "tests/support/private_mount.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

// Records more than fits, and checks that only the record suffers.
void RecordTooMuch(const std::string& path, const std::string& reason) {
  FileRecorderOptions options;
  options.interval = std::chrono::milliseconds(1);
  auto recorder = FileRecorder::Create(path, options);
  ASSERT_THAT(recorder, IsOk());
  (*recorder)->AddRank(SomeRank(0, 1, 2));
  for (int64_t i = 0; i < 20'000; ++i) {
    RunEvent event;
    event.bytes = i;
    (*recorder)->Record(event);
    if (i % 1000 == 0) std::this_thread::sleep_for(options.interval);
  }
  const Status closed = (*recorder)->Close();
  EXPECT_THAT(closed, StatusIs(ErrorCode::kIoError, Says(reason)));
  EXPECT_EQ((*recorder)->Close().message(), closed.message());

  const Result<RunRecord> record = ReadRecord(path);
  ASSERT_THAT(record, IsOk());
  EXPECT_THAT(record->completeness, StatusIs(ErrorCode::kStoppedEarly));
  EXPECT_GT(record->events.size(), 100u);
  EXPECT_LT(record->events.size(), 20'000u);
  EXPECT_EQ(static_cast<int64_t>(record->events.size()),
            (*recorder)->totals().events);
  for (size_t i = 0; i < record->events.size(); ++i) {
    EXPECT_EQ(record->events[i].bytes, static_cast<int64_t>(i));
  }
}

TEST(RecordWriterFullDiskTest, AFullFileSystemStopsTheRecordNotTheRun) {
  const TempDir dir;
  RunWithPrivateMount({.type = "tmpfs", .options = "size=64k"}, dir.path(),
                      [&] { RecordTooMuch(dir.File("run"), "No space left"); });
}

// Without care the kernel would end the process by SIGXFSZ.
TEST(RecordWriterFullDiskTest, ALimitOnFileSizesDoesNotKillTheRun) {
  const TempDir dir;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 64 << 10, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  RecordTooMuch(dir.File("run"), "File too large");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

}  // namespace
}  // namespace castor
