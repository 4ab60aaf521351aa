// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/unique_fd.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "gtest/gtest.h"

namespace castor {
namespace {

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
