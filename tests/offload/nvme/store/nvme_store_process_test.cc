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
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/nvme/store/nvme_store.h"
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
  ASSERT_OK_AND_ASSIGN(auto store, Make(dir, MiB(8), &log));
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(said[0], Says("which was killed left behind"));
  EXPECT_THAT(WriteAndRead(*store, 2), IsOk());
  EXPECT_THAT(store->Close(), IsOk());
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

// What was set aside is lost to a program that cuts the file, and to another
// that fills the disk: the write fails with the system's reason, the rest
// stays.
TEST(NvmeStoreProcessTest, ADiskThatFillsUpFailsTheWriteAndNothingElse) {
  TempDir dir;
  RunWithPrivateMount({.type = "tmpfs", .options = "size=8m"}, dir.path(), [&] {
    auto store = Make(dir, MiB(4));
    ASSERT_THAT(store, IsOk());
    AlignedBytes first(MiB(1)), second(MiB(1)), read(MiB(1));
    FillRandom(first.span(), 1);
    FillRandom(second.span(), 2);
    const auto write = [&](Bytes at, const AlignedBytes& bytes) {
      return (*store)
          ->Write(at, bytes.span(), Event(), "spill of chunk 2")
          .Wait();
    };
    const auto expect = [&](Bytes at, const AlignedBytes& bytes) {
      EXPECT_THAT((*store)->Read(at, read.span(), Event(), "r").Wait(), IsOk());
      EXPECT_TRUE(SameBytes(read.span(), bytes.span()));
    };
    ASSERT_THAT(write(MiB(0), first), IsOk());
    ASSERT_EQ(truncate((*store)->file().c_str(), 1 << 20), 0);
    const int filler =
        open(dir.File("filler").c_str(), O_CREAT | O_WRONLY, 0600);
    ASSERT_EQ(fallocate(filler, 0, 0, 7 << 20), 0);
    EXPECT_THAT(write(MiB(2), second),
                StatusIs(ErrorCode::kIoError,
                         Says("spill of chunk 2", "No space left on device",
                              (*store)->file().string(), "offset 2097152")));
    expect(MiB(0), first);
    close(filler);
    std::filesystem::remove(dir.File("filler"));
    ASSERT_THAT(write(MiB(2), second), IsOk());
    expect(MiB(2), second);
  });
}

TEST(NvmeStoreProcessTest, WorksThroughThePageCacheWhereDirectIsRefused) {
  TempDir dir;
  RunWithPrivateMount({.type = "ramfs", .options = ""}, dir.path(), [&] {
    std::vector<std::string> said;
    Log log([&](LogLevel, std::string_view line) { said.emplace_back(line); });
    // As two ranks on one drive.
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_OK_AND_ASSIGN(const auto store, Make(dir, MiB(4), &log));
      EXPECT_FALSE(store->stats().direct);
      EXPECT_THAT(WriteAndRead(*store, 1), IsOk());
    }
    EXPECT_THAT(said, testing::Contains(Says("O_DIRECT")).Times(1));
  });
}

}  // namespace
}  // namespace castor
