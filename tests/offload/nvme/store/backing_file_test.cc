// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/store/backing_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/nvme/file_system_facts.h"
#include "offload/nvme/queue/file_calls.h"
#include "offload/nvme/queue/unique_fd.h"
#include "offload/nvme/store/preallocate.h"
#include "tests/support/private_mount.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::ElementsAre;

TEST(BackingFileTest, HasItsSizeAndSaysHowItWasOpened) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(auto made,
                       MakeBackingFile(dir.File("data"), MiB(2), nullptr));
  EXPECT_EQ(std::filesystem::file_size(dir.File("data")), 2u << 20);
  const int flags = ::fcntl(made.fd.get(), F_GETFL);
  EXPECT_EQ((flags & O_DIRECT) != 0, made.direct);
  EXPECT_EQ(flags & O_ACCMODE, O_RDWR);
}

TEST(BackingFileTest, NeverOpensAFileThatIsThere) {
  TempDir dir;
  ASSERT_THAT(MakeBackingFile(dir.File("data"), KiB(4), nullptr), IsOk());
  EXPECT_THAT(
      MakeBackingFile(dir.File("data"), KiB(8), nullptr),
      StatusIs(ErrorCode::kUnavailable, Says(dir.File("data"), "File exists")));
  EXPECT_EQ(std::filesystem::file_size(dir.File("data")), 4096u);
}

int64_t BlocksOf(const std::string& file) {
  struct stat now;
  EXPECT_EQ(::stat(file.c_str(), &now), 0);
  return now.st_blocks * 512;
}

TEST(BackingFileTest, SpaceMayComeAsItIsWrittenAndGoBitByBit) {
  TempDir dir;
  const std::string file = dir.File("data");
  FileCalls full;
  full.fallocate = [](int, int, off_t, off_t) {
    errno = ENOSPC;
    return -1;
  };
  ASSERT_OK_AND_ASSIGN(
      auto made,
      MakeBackingFile(file, MiB(2), nullptr, FileSpace::kAtOnceIfThere, full));
  EXPECT_TRUE(made.as_written);
  EXPECT_EQ(std::filesystem::file_size(file), 2u << 20);
  EXPECT_LE(BlocksOf(file), 4096);
  ASSERT_THAT(Preallocate(made.fd.get(), file, MiB(2)), IsOk());
  EXPECT_EQ(BlocksOf(file), 2 << 20);
  ASSERT_TRUE(GiveSpace(made.fd.get(), MiB(1), KiB(512)));
  EXPECT_EQ(BlocksOf(file), 3 << 19);

  ASSERT_OK_AND_ASSIGN(auto later,
                       MakeBackingFile(dir.File("later"), MiB(2), nullptr,
                                       FileSpace::kAsWritten));
  EXPECT_TRUE(later.as_written);
  EXPECT_LE(BlocksOf(dir.File("later")), 4096);
  ASSERT_OK_AND_ASSIGN(auto now,
                       MakeBackingFile(dir.File("now"), MiB(2), nullptr,
                                       FileSpace::kAtOnceIfThere));
  EXPECT_FALSE(now.as_written);
  EXPECT_EQ(BlocksOf(dir.File("now")), 2 << 20);
  EXPECT_THAT(
      MakeBackingFile(dir.File("full"), MiB(2), nullptr, FileSpace::kAtOnce,
                      full),
      StatusIs(ErrorCode::kUnavailable, Says("needs 2097152 B", "is free")));
}

// ramfs has neither O_DIRECT nor fallocate, and does not say what is free.
TEST(BackingFileTest, FallsBackWhereTheFileSystemRefusesAndSaysSoOnce) {
  TempDir dir;
  RunWithPrivateMount({.type = "ramfs", .options = ""}, dir.path(), [&] {
    std::vector<std::string> said;
    Log log([&](LogLevel, std::string_view line) { said.emplace_back(line); });
    for (const char* name : {"a", "b"}) {
      ASSERT_OK_AND_ASSIGN(auto made,
                           MakeBackingFile(dir.File(name), MiB(2), &log));
      EXPECT_FALSE(made.direct);
      EXPECT_EQ(std::filesystem::file_size(dir.File(name)), 2u << 20);
    }
    EXPECT_THAT(said,
                ElementsAre(Says("O_DIRECT", "page cache", "Invalid argument",
                                 dir.path().string(), "ext4")));
  });
}

TEST(FileSystemFactsTest, KnowsThePseudoFileSystemsOfEveryMachine) {
  ASSERT_OK_AND_ASSIGN(auto proc, DescribeFileSystem("/proc/self"));
  EXPECT_EQ(proc.type, "proc");
  EXPECT_FALSE(proc.in_memory);
  EXPECT_FALSE(proc.overlay);
}

TEST(FileSystemFactsTest, FollowsLinksAndRelativePaths) {
  TempDir dir;
  std::filesystem::create_directory_symlink("/proc", dir.File("link"));
  ASSERT_OK_AND_ASSIGN(auto facts, DescribeFileSystem(dir.File("link")));
  EXPECT_EQ(facts.type, "proc");
  EXPECT_THAT(DescribeFileSystem("."), IsOk());
}

TEST(FileSystemFactsTest, RefusesAPathThatIsNotThere) {
  EXPECT_THAT(DescribeFileSystem("/nonexistent/castor"),
              StatusIs(ErrorCode::kUnavailable,
                       Says("/nonexistent/castor", "No such file")));
}

TEST(FileSystemFactsTest, SaysWhatIsMountedOnTopAndThatItIsMemory) {
  TempDir dir;
  // mountinfo writes the blank as an escape.
  const std::filesystem::path folder = dir.path() / "a folder";
  std::filesystem::create_directory(folder);
  std::filesystem::create_directory(dir.path() / "a folder b");
  RunWithPrivateMount({.type = "tmpfs", .options = "size=8m"}, folder, [&] {
    std::filesystem::create_directory(folder / "below");
    ASSERT_OK_AND_ASSIGN(const auto facts,
                         DescribeFileSystem(folder / "below"));
    EXPECT_EQ(facts.type, "tmpfs");
    EXPECT_TRUE(facts.in_memory);
    EXPECT_FALSE(facts.network);
    EXPECT_FALSE(facts.overlay);
    EXPECT_GT(facts.free, Bytes(0));
    EXPECT_LE(facts.free, MiB(8));
    EXPECT_EQ(facts.size, MiB(8));
    // A neighbour of like name is not taken for the mount.
    EXPECT_EQ(DescribeFileSystem(dir.path() / "a folder b")->type,
              DescribeFileSystem(dir.path())->type);
  });
}

TEST(BackingFileTest, SaysThatADirectoryIsMemory) {
  TempDir dir;
  const std::filesystem::path folder = dir.path() / "folder";
  std::filesystem::create_directory(folder);
  for (const bool memory : {true, false}) {
    std::vector<std::string> said;
    const auto make = [&] {
      Log log(
          [&](LogLevel, std::string_view line) { said.emplace_back(line); });
      std::filesystem::create_directory(folder / "run");
      for (const char* name : {"a", "b"}) {
        EXPECT_THAT(
            MakeBackingFile(folder / "run" / name, MiB(1), &log).status(),
            IsOk());
      }
    };
    if (!memory) {
      // The tests' own folder may be either.
      ASSERT_OK_AND_ASSIGN(const auto facts, DescribeFileSystem(folder));
      make();
      if (!facts.in_memory) {
        for (const std::string& line : said) {
          EXPECT_THAT(line, testing::Not(Says("host memory: what goes")));
        }
      }
      continue;
    }
    RunWithPrivateMount({.type = "tmpfs", .options = "size=8m"}, folder, [&] {
      make();
      // Before 6.6 a kernel refuses O_DIRECT there, which is said instead.
      ASSERT_EQ(said.size(), 1u);
      EXPECT_THAT(said[0],
                  testing::AnyOf(Says("is on tmpfs, which is host memory"),
                                 Says("refuses O_DIRECT")));
    });
  }
}

class PreallocateTest : public testing::Test {
 protected:
  PreallocateTest()
      : path_(dir_.File("data")),
        fd_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}

  // The file's size, and what the disk has set aside for it.
  int64_t SizeOnDisk() {
    struct stat facts;
    EXPECT_EQ(::fstat(fd_.get(), &facts), 0);
    EXPECT_GE(facts.st_blocks * 512, facts.st_size);
    return facts.st_size;
  }

  TempDir dir_;
  std::string path_;
  UniqueFd fd_;
};

FileCalls Refusing(int error) {
  FileCalls calls;
  calls.fallocate = [error](int, int, off_t, off_t) {
    errno = error;
    return -1;
  };
  return calls;
}

TEST_F(PreallocateTest, SetsTheBytesAside) {
  ASSERT_THAT(Preallocate(fd_.get(), path_, MiB(3)), IsOk());
  EXPECT_EQ(SizeOnDisk(), MiB(3).count());
}

TEST_F(PreallocateTest, WritesZerosWhereTheFileSystemCannotSetAside) {
  for (const int error : {EOPNOTSUPP, ENOSYS}) {
    ASSERT_EQ(::ftruncate(fd_.get(), 0), 0);
    ASSERT_THAT(Preallocate(fd_.get(), path_, MiB(2) + KiB(4), Refusing(error)),
                IsOk());
    EXPECT_EQ(SizeOnDisk(), (MiB(2) + KiB(4)).count());
  }
}

TEST_F(PreallocateTest, AFullDiskIsToldWithNeedFreeSpaceAndRemedy) {
  for (const int error : {ENOSPC, EDQUOT}) {
    EXPECT_THAT(
        Preallocate(fd_.get(), path_, MiB(64), Refusing(error)),
        StatusIs(ErrorCode::kUnavailable,
                 Says("needs 67108864 B (64.0 MiB)", dir_.path().string(),
                      "is free", "another directory")));
  }
}

TEST_F(PreallocateTest, ADiskThatFillsUpWhileZerosAreWrittenIsToldAlike) {
  FileCalls calls = Refusing(EOPNOTSUPP);
  calls.pwrite = [](int fd, const void* data, size_t size,
                    off_t offset) -> ssize_t {
    if (offset < MiB(2).count()) return ::pwrite(fd, data, size, offset);
    errno = ENOSPC;
    return -1;
  };
  EXPECT_THAT(Preallocate(fd_.get(), path_, MiB(4), calls),
              StatusIs(ErrorCode::kUnavailable,
                       Says("needs 4194304 B", "No space left on device")));
}

TEST_F(PreallocateTest, ResumesShortAndInterruptedCalls) {
  FileCalls calls = Refusing(EOPNOTSUPP);
  int turn = 0;
  calls.pwrite = [&](int fd, const void* data, size_t size,
                     off_t offset) -> ssize_t {
    if (++turn % 2 == 0) {
      errno = EINTR;
      return -1;
    }
    return ::pwrite(fd, data, std::min<size_t>(size, 300000), offset);
  };
  ASSERT_THAT(Preallocate(fd_.get(), path_, MiB(2), calls), IsOk());
  EXPECT_EQ(SizeOnDisk(), MiB(2).count());

  calls = {};
  int interruptions = 3;
  calls.fallocate = [&](int fd, int mode, off_t offset, off_t size) {
    if (interruptions-- == 0) return ::fallocate(fd, mode, offset, size);
    errno = EINTR;
    return -1;
  };
  ASSERT_THAT(Preallocate(fd_.get(), path_, MiB(3), calls), IsOk());
  EXPECT_EQ(SizeOnDisk(), MiB(3).count());
}

TEST_F(PreallocateTest, NamesAnyOtherFailure) {
  EXPECT_THAT(Preallocate(fd_.get(), path_, MiB(1), Refusing(EIO)),
              StatusIs(ErrorCode::kUnavailable, Says(path_, "errno 5")));
}

// Without care the kernel would end the process by SIGXFSZ.
TEST_F(PreallocateTest, RefusesMoreThanTheLimitOfFileSize) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = Preallocate(fd_.get(), path_, MiB(2));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(status, StatusIs(ErrorCode::kUnavailable,
                               Says("1048576 B", "ulimit -f")));
}

TEST_F(PreallocateTest, ARealFullDiskIsRefusedBothWays) {
  for (const int error : {0, EOPNOTSUPP}) {
    RunWithPrivateMount(
        {.type = "tmpfs", .options = "size=8m"}, dir_.path(), [&] {
          UniqueFd fd(
              ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
          const FileCalls calls = error == 0 ? FileCalls() : Refusing(error);
          EXPECT_THAT(Preallocate(fd.get(), path_, MiB(64), calls),
                      StatusIs(ErrorCode::kUnavailable,
                               Says("8388608 B (8.0 MiB) is free")));
          EXPECT_THAT(Preallocate(fd.get(), path_, MiB(4), calls), IsOk());
        });
  }
}

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
UniqueFd Null() { return UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)); }

TEST(UniqueFdTest, ClosesWhatItOwnsOnce) {
  int fd = -1;
  {
    UniqueFd owner = Null();
    fd = owner.get();
    ASSERT_TRUE(owner.valid());
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));

  UniqueFd owner = Null();
  EXPECT_EQ(owner.Close(), 0);
  EXPECT_FALSE(owner.valid());
  EXPECT_EQ(owner.Close(), 0);
}

TEST(UniqueFdTest, MovesAndClosesWhatItHeldBefore) {
  UniqueFd a = Null(), b = Null();
  const int first = a.get(), second = b.get();
  b = std::move(a);
  EXPECT_EQ(b.get(), first);
  EXPECT_TRUE(IsOpen(first));
  EXPECT_FALSE(IsOpen(second));
  UniqueFd c(std::move(b));
  EXPECT_EQ(c.get(), first);
  EXPECT_FALSE(b.valid());  // NOLINT(bugprone-use-after-move): that is the test
}

TEST(UniqueFdTest, ReportsADescriptorThatWasClosedBehindItsBack) {
  UniqueFd owner = Null();
  ::close(owner.get());
  EXPECT_EQ(owner.Close(), EBADF);
}

}  // namespace
}  // namespace castor
