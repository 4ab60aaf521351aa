// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/preallocate.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/nvme/file_calls.h"
#include "offload/nvme/unique_fd.h"
#include "tests/support/private_mount.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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
                 AllOf(HasSubstr("needs 67108864 B (64.0 MiB)"),
                       HasSubstr(dir_.path().string()), HasSubstr("is free"),
                       HasSubstr("another directory"))));
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
                       AllOf(HasSubstr("needs 4194304 B"),
                             HasSubstr("No space left on device"))));
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
              StatusIs(ErrorCode::kUnavailable,
                       AllOf(HasSubstr(path_), HasSubstr("errno 5"))));
}

// Without care the kernel would end the process by SIGXFSZ.
TEST_F(PreallocateTest, RefusesMoreThanTheLimitOfFileSize) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = Preallocate(fd_.get(), path_, MiB(2));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(status,
              StatusIs(ErrorCode::kUnavailable,
                       AllOf(HasSubstr("1048576 B"), HasSubstr("ulimit -f"))));
}

TEST_F(PreallocateTest, ARealFullDiskIsRefusedBothWays) {
  for (const int error : {0, EOPNOTSUPP}) {
    const auto result = RunWithPrivateMount(
        {.type = "tmpfs", .options = "size=8m"}, dir_.path(),
        [&]() -> std::string {
          UniqueFd fd(
              ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
          const FileCalls calls = error == 0 ? FileCalls() : Refusing(error);
          const Status full = Preallocate(fd.get(), path_, MiB(64), calls);
          if (full.code() != ErrorCode::kUnavailable ||
              full.message().find("8388608 B (8.0 MiB) is free") ==
                  std::string::npos) {
            return "unexpected: " + full.ToString();
          }
          const Status fits = Preallocate(fd.get(), path_, MiB(4), calls);
          return fits.ok() ? "" : fits.ToString();
        });
    if (!result.skipped.empty()) GTEST_SKIP() << result.skipped;
    EXPECT_EQ(result.failure, "");
  }
}

}  // namespace
}  // namespace castor
