// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Files of a checkpoint on drives that move less than they were asked to, that
// fail, and that lose power.

#include "collectives/checkpoint/files/data_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_plan.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/checkpoint_verify.h"
#include "collectives/checkpoint/checkpoint_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fakes/forgetful_files.h"
#include "tests/support/file_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

constexpr std::string_view kText = "a text of more than a few bytes";
constexpr int64_t kCount = 100;

// Two processes save a parameter, each a part of it, and rank 0 commits.
Status SaveValues(const std::string& directory, int64_t step, float value) {
  std::array<float, kCount> values = {};
  values.fill(value);
  const auto plan = [&] {
    return CheckpointWriter::Plan(directory, step,
                                  {{{"w", {kCount}, DType::kF32},
                                    {{StateKind::kParam, DType::kF32},
                                     {OptimizerState(0), DType::kF32}}}},
                                  StateNames(), MiB(1));
  };
  CASTOR_ASSIGN_OR_RETURN(CheckpointWriter first, plan());
  CASTOR_ASSIGN_OR_RETURN(CheckpointWriter second, plan());
  CASTOR_RETURN_IF_ERROR(first.CreateFiles());
  const auto write = [&](CheckpointWriter& writer, int64_t begin,
                         int64_t count) -> Status {
    for (const StateKind kind : {StateKind::kParam, OptimizerState(0)}) {
      CASTOR_RETURN_IF_ERROR(
          writer.Write(0, kind, DType::kF32, begin, count,
                       reinterpret_cast<const std::byte*>(&values[begin])));
    }
    return writer.Sync();
  };
  CASTOR_RETURN_IF_ERROR(write(first, 0, 64));
  CASTOR_RETURN_IF_ERROR(write(second, 64, kCount - 64));
  for (size_t i = 0; i < first.digests().size(); ++i) {
    first.digests()[i] += second.digests()[i];
  }
  CheckpointManifest manifest;
  manifest.step = step;
  manifest.optimizer = "adamw";
  first.Describe(std::array<int64_t, 1>{step}, "trainer", &manifest);
  return first.Commit(manifest, "trainer").status();
}

// The value of the latest checkpoint, which is whole.
Result<float> LatestValue(const std::string& directory) {
  CASTOR_ASSIGN_OR_RETURN(const CheckpointReader reader,
                          CheckpointReader::Find(directory, std::nullopt));
  CASTOR_ASSIGN_OR_RETURN(const auto damage, FindDamage(reader));
  if (!damage.empty()) return DataLoss(damage.front().file);
  CASTOR_RETURN_IF_ERROR(reader.ReadTrainer().status());
  float value = 0;
  CASTOR_RETURN_IF_ERROR(reader.Read(0, reader.manifest().params[0].states[0],
                                     kCount - 1, 1, &value));
  return value;
}

TEST(DataFileTest, GoesOnWhereTheSystemMovedLessThanAsked) {
  const TempDir dir;
  const std::string path = dir.File("file");
  int calls = 0;
  const ScopedDataFileCalls scoped(
      {.pread = [&](int fd, void* to, size_t bytes, off_t offset) -> ssize_t {
         errno = EINTR;
         return ++calls % 2
                    ? -1
                    : ::pread(fd, to, std::min<size_t>(bytes, 5), offset);
       },
       .pwrite = [&](int fd, const void* from, size_t bytes,
                     off_t offset) -> ssize_t {
         errno = EINTR;
         return ++calls % 2
                    ? -1
                    : ::pwrite(fd, from, std::min<size_t>(bytes, 7), offset);
       }});
  ASSERT_THAT(WriteNewFile(path, kText), IsOk());
  EXPECT_EQ(FileText(path), kText);
  EXPECT_EQ(calls, 10);
  EXPECT_THAT(ReadWholeFile(path, 100), IsOkAndHolds(std::string(kText)));
  EXPECT_EQ(calls, 24);
}

TEST(DataFileTest, SaysWhatFailed) {
  const TempDir dir;
  const std::string path = dir.File("file");
  ASSERT_THAT(WriteNewFile(path, kText), IsOk());
  int error = EIO;
  const auto fail = [&] {
    errno = error;
    return -1;
  };
  const ScopedDataFileCalls calls({.pread = [&](auto...) { return fail(); },
                                   .pwrite =
                                       [&](auto...) {
                                         // A drive that takes nothing, and
                                         // gives no reason.
                                         return error == 0 ? 0 : fail();
                                       },
                                   .fsync = [&](int) { return fail(); }});
  ASSERT_OK_AND_ASSIGN(DataFile file, DataFile::OpenToWrite(path));
  EXPECT_THAT(file.WriteAt(0, "x", 1),
              StatusIs(ErrorCode::kIoError,
                       Says("file\" could not be written: Input/output error",
                            "check the drive")));
  EXPECT_THAT(file.Sync(), StatusIs(ErrorCode::kIoError,
                                    Says("could not be put on the drive")));
  EXPECT_THAT(SyncFolder(dir.path().string()), StatusIs(ErrorCode::kIoError));
  EXPECT_THAT(ReadWholeFile(path, 100),
              StatusIs(ErrorCode::kIoError, Says("could not be read")));
  error = ENOSPC;
  EXPECT_THAT(file.WriteAt(0, "x", 1),
              StatusIs(ErrorCode::kIoError, Says("free some space")));
  error = 0;
  EXPECT_THAT(file.WriteAt(0, "x", 1), StatusIs(ErrorCode::kIoError));
  // A file system without a sync of folders is taken to be right.
  error = EINVAL;
  EXPECT_THAT(SyncFolder(dir.path().string()), IsOk());
}

// Every write and every sync in turn: the checkpoint before stays the latest.
TEST(DataFileTest, NoCheckpointComesOfAWriteOrSyncThatFailed) {
  const TempDir dir;
  const std::string run = dir.File("run");
  ASSERT_THAT(SaveValues(run, 1, 1.0F), IsOk());
  int left = 0;
  const auto fails = [&] {
    errno = EIO;
    return left-- == 0;
  };
  const ScopedDataFileCalls calls(
      {.pwrite =
           [&](int fd, const void* from, size_t bytes, off_t offset) {
             return fails() ? -1 : ::pwrite(fd, from, bytes, offset);
           },
       .fsync = [&](int fd) { return fails() ? -1 : ::fsync(fd); }});
  int failed = 0;
  for (;; ++failed) {
    left = failed;
    const Status saved = SaveValues(run, 2, 2.0F);
    if (saved.ok() || std::filesystem::exists(run + "/" + CheckpointName(2))) {
      break;
    }
    EXPECT_THAT(saved, StatusIs(ErrorCode::kIoError));
    EXPECT_THAT(LatestValue(run), IsOkAndHolds(1.0F)) << failed;
    EXPECT_FALSE(std::filesystem::exists(DraftPath(run, 2))) << failed;
  }
  // Two heads, four parts, each writer's two files, two texts, two folders.
  EXPECT_EQ(failed, 2 + 4 + 4 + 2 * 2 + 2);
}

TEST(PowerCutTest, WhatWasSavedSurvivesIt) {
  const TempDir dir;
  const TempDir after;
  ForgetfulFiles files(dir.path());
  const ScopedDataFileCalls calls(files.Calls());
  ASSERT_THAT(SaveValues(dir.File("run"), 1, 1.0F), IsOk());
  files.Recover(after.File("left"));
  EXPECT_THAT(LatestValue(after.File("left/run")), IsOkAndHolds(1.0F));
}

// One of another step, and one in place of the one that is there.
TEST(PowerCutTest, LeavesTheCheckpointBeforeOrTheNewOneAtAnyMoment) {
  for (const int64_t step : {1, 2}) {
    const TempDir dir;
    const TempDir after;
    ForgetfulFiles files(dir.path());
    const ScopedDataFileCalls calls(files.Calls());
    ASSERT_THAT(SaveValues(dir.File("run"), 1, 1.0F), IsOk());
    int moments = 0;
    int new_ones = 0;
    files.OnSync([&] {
      const std::string left = after.File(std::to_string(++moments));
      files.Recover(left);
      const Result<float> value = LatestValue(left + "/run");
      ASSERT_THAT(value, IsOk()) << "after sync " << moments;
      new_ones += *value == 2.0F;
    });
    ASSERT_THAT(SaveValues(dir.File("run"), step, 2.0F), IsOk());
    EXPECT_GT(moments, 6);
    // The last sync is the one that gives the checkpoint its name.
    EXPECT_EQ(new_ones, 1);
  }
}

}  // namespace
}  // namespace castor
