// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Stores of several processes, dead and alive, and on file systems that only a
// child process sees.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/event.h"
#include "offload/nvme/nvme_store.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/private_mount.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

Result<std::unique_ptr<NvmeStore>> Make(const TempDir& dir, Bytes size,
                                        Log* log = nullptr) {
  return NvmeStore::Create({.drives = {{dir.path(), size}}, .log = log});
}

Status WriteAndRead(NvmeStore& store, uint64_t seed) {
  AlignedBytes written(MiB(2)), read(MiB(2));
  FillRandom(written.span(), seed);
  const Event wrote = store.Write(MiB(1), written.span(), Event(), "w");
  CASTOR_RETURN_IF_ERROR(store.Read(MiB(1), read.span(), wrote, "r").Wait());
  return SameBytes(read.span(), written.span()) ? OkStatus()
                                                : DataLoss("other bytes");
}

TEST(NvmeStoreProcessTest, ReclaimsTheFileOfAKilledRun) {
  TempDir dir;
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) {
    auto store = Make(dir, MiB(8));
    if (!store.ok() || !WriteAndRead(**store, 1).ok()) _exit(1);
    // Killed with a write on its way.
    AlignedBytes bytes(MiB(4));
    const Event lost = (*store)->Write(MiB(4), bytes.span(), Event(), "w");
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_FALSE(std::filesystem::is_empty(dir.path()));
  std::vector<std::string> said;
  Log log([&](LogLevel, std::string_view line) { said.emplace_back(line); });
  auto store = Make(dir, MiB(8), &log);
  ASSERT_THAT(store, IsOk());
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(said[0], testing::HasSubstr("which was killed left behind"));
  EXPECT_THAT(WriteAndRead(**store, 2), IsOk());
  EXPECT_THAT((*store)->Close(), IsOk());
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(NvmeStoreProcessTest, TwoRunsShareADirectory) {
  TempDir dir;
  int go[2];
  ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) {
    auto store = Make(dir, MiB(8));
    char byte = 0;
    // Writes before, during and after the other run's life.
    if (!store.ok() || !WriteAndRead(**store, 1).ok()) _exit(1);
    for (uint64_t i = 0; i < 20; ++i) {
      if (!WriteAndRead(**store, i).ok()) _exit(2);
    }
    if (read(go[0], &byte, 1) != 1) _exit(3);
    if (!WriteAndRead(**store, 99).ok()) _exit(4);
    _exit((*store)->Close().ok() ? 0 : 5);
  }
  for (uint64_t i = 0; i < 5; ++i) {
    auto store = Make(dir, MiB(4));
    ASSERT_THAT(store, IsOk());
    EXPECT_THAT(WriteAndRead(**store, 100 + i), IsOk());
    EXPECT_THAT((*store)->Close(), IsOk());
  }
  char byte = 0;
  ASSERT_EQ(write(go[1], &byte, 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  close(go[0]);
  close(go[1]);
}

TEST(NvmeStoreProcessTest, AFullDiskIsRefusedWithNumbersAndLeavesNothing) {
  TempDir dir;
  const auto result = RunWithPrivateMount(
      {.type = "tmpfs", .options = "size=8m"}, dir.path(),
      [&]() -> std::string {
        auto full = Make(dir, MiB(64));
        if (full.ok()) return "64 MiB fit into 8 MiB";
        const std::string text = full.status().ToString();
        for (const char* part :
             {"unavailable", "67108864 B (64.0 MiB)", "is free",
              dir.path().c_str(), "smaller size"}) {
          if (text.find(part) == std::string::npos) return text;
        }
        if (!std::filesystem::is_empty(dir.path())) return "something is left";
        auto fits = Make(dir, MiB(4));
        return fits.ok() ? WriteAndRead(**fits, 1).ToString()
                         : fits.status().ToString();
      });
  if (!result.skipped.empty()) GTEST_SKIP() << result.skipped;
  EXPECT_EQ(result.failure, "ok");
}

// What was set aside is lost to a program that cuts the file, and to another
// that fills the disk: the write fails with the system's reason, the rest
// stays.
TEST(NvmeStoreProcessTest, ADiskThatFillsUpFailsTheWriteAndNothingElse) {
  TempDir dir;
  const auto result = RunWithPrivateMount(
      {.type = "tmpfs", .options = "size=8m"}, dir.path(),
      [&]() -> std::string {
        auto store = Make(dir, MiB(4));
        if (!store.ok()) return store.status().ToString();
        AlignedBytes first(MiB(1)), second(MiB(1)), read(MiB(1));
        FillRandom(first.span(), 1);
        FillRandom(second.span(), 2);
        auto write = [&](Bytes at, const AlignedBytes& bytes) {
          return (*store)
              ->Write(at, bytes.span(), Event(), "spill of chunk 2")
              .Wait();
        };
        if (!write(MiB(0), first).ok()) return "the first write failed";
        if (truncate((*store)->file().c_str(), 1 << 20) != 0) return "truncate";
        const int filler =
            open(dir.File("filler").c_str(), O_CREAT | O_WRONLY, 0600);
        if (filler < 0 || fallocate(filler, 0, 0, 7 << 20) != 0) {
          return "cannot fill the disk";
        }
        const Status full = write(MiB(2), second);
        if (full.code() != ErrorCode::kIoError) return full.ToString();
        for (const char* part : {"spill of chunk 2", "No space left on device",
                                 (*store)->file().c_str(), "offset 2097152"}) {
          if (full.message().find(part) == std::string_view::npos) {
            return full.ToString();
          }
        }
        Status status =
            (*store)->Read(MiB(0), read.span(), Event(), "fetch").Wait();
        if (!status.ok()) return status.ToString();
        if (!SameBytes(read.span(), first.span())) return "chunk 1 was hurt";
        close(filler);
        std::filesystem::remove(dir.File("filler"));
        status = write(MiB(2), second);
        if (!status.ok()) return status.ToString();
        status = (*store)->Read(MiB(2), read.span(), Event(), "fetch").Wait();
        if (!status.ok()) return status.ToString();
        return SameBytes(read.span(), second.span()) ? "" : "other bytes";
      });
  if (!result.skipped.empty()) GTEST_SKIP() << result.skipped;
  EXPECT_EQ(result.failure, "");
}

TEST(NvmeStoreProcessTest, WorksThroughThePageCacheWhereDirectIsRefused) {
  TempDir dir;
  const auto result = RunWithPrivateMount(
      {.type = "ramfs", .options = ""}, dir.path(), [&]() -> std::string {
        std::vector<std::string> said;
        Log log(
            [&](LogLevel, std::string_view line) { said.emplace_back(line); });
        // As two ranks on one drive.
        for (int rank = 0; rank < 2; ++rank) {
          auto store = Make(dir, MiB(4), &log);
          if (!store.ok()) return store.status().ToString();
          if ((*store)->stats().direct) return "O_DIRECT on ramfs";
          const Status status = WriteAndRead(**store, 1);
          if (!status.ok()) return status.ToString();
        }
        int64_t about = 0;
        for (const std::string& line : said) {
          about += line.find("O_DIRECT") != std::string::npos;
        }
        return about == 1 ? "" : "said " + std::to_string(about) + " times";
      });
  if (!result.skipped.empty()) GTEST_SKIP() << result.skipped;
  EXPECT_EQ(result.failure, "");
}

}  // namespace
}  // namespace castor
