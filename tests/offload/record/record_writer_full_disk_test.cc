// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a recorder does when its disk is full. Each test does so to a process of
// its own: a small file system is mounted where no one else sees it, and a
// limit on file sizes holds for a whole process.

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/record/record_reader.h"
#include "offload/record/record_writer.h"
#include "tests/offload/record/random_events.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

constexpr int kNotPermitted = 77;

// The exit code of `body` in a process of its own; -1 when it was killed.
int InChild(const std::function<int()>& body) {
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Mounts a file system of 64 KiB, which only this process sees, over `folder`.
bool MountSmall(const std::filesystem::path& folder) {
  const uid_t uid = getuid();
  const gid_t gid = getgid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " << uid << " 1";
  std::ofstream("/proc/self/gid_map") << "0 " << gid << " 1";
  return mount("small", folder.c_str(), "tmpfs", 0, "size=64k") == 0;
}

// Records more than fits, and checks that only the record suffers.
int RecordTooMuch(const std::string& path, const std::string& reason) {
  FileRecorderOptions options;
  options.interval = std::chrono::milliseconds(1);
  auto recorder = FileRecorder::Create(path, options);
  EXPECT_THAT(recorder, IsOk());
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
  EXPECT_THAT(record, IsOk());
  EXPECT_THAT(record->completeness, StatusIs(ErrorCode::kStoppedEarly));
  EXPECT_GT(record->events.size(), 100u);
  EXPECT_LT(record->events.size(), 20'000u);
  EXPECT_EQ(static_cast<int64_t>(record->events.size()),
            (*recorder)->totals().events);
  for (size_t i = 0; i < record->events.size(); ++i) {
    EXPECT_EQ(record->events[i].bytes, static_cast<int64_t>(i));
  }
  return testing::Test::HasFailure() ? 1 : 0;
}

TEST(RecordWriterFullDiskTest, AFullFileSystemStopsTheRecordNotTheRun) {
  const TempDir dir;
  const int exit_code = InChild([&] {
    if (!MountSmall(dir.path())) return kNotPermitted;
    return RecordTooMuch(dir.File("run"), "No space left");
  });
  if (exit_code == kNotPermitted) {
    GTEST_SKIP() << "this system does not let an unprivileged process mount a "
                    "file system of its own";
  }
  EXPECT_EQ(exit_code, 0);
}

TEST(RecordWriterFullDiskTest, ALimitOnFileSizesDoesNotKillTheRun) {
  const TempDir dir;
  const int exit_code = InChild([&] {
    const rlimit limit = {64 << 10, 64 << 10};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return kNotPermitted;
    return RecordTooMuch(dir.File("run"), "File too large");
  });
  EXPECT_EQ(exit_code, 0);
}

}  // namespace
}  // namespace castor
