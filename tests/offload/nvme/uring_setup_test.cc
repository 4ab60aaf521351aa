// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/uring_setup.h"

#include <liburing.h>

#include <cerrno>
#include <optional>
#include <string>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/without_uring.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(UringSetupTest, ARefusalNamesTheReasonAndTheRemedy) {
  Status status;
  const bool filtered = WithoutUring(EPERM, [&] {
    io_uring ring;
    status = SetUpRing(8, &ring);
  });
  if (!filtered) GTEST_SKIP() << "the kernel allows no seccomp filter";
  EXPECT_THAT(status, StatusIs(ErrorCode::kUnavailable,
                               AllOf(HasSubstr("Operation not permitted"),
                                     HasSubstr("io_uring_disabled"))));
}

TEST(UringSetupTest, EveryReasonHasARemedy) {
  for (const int error : {ENOSYS, EPERM, EACCES, ENOMEM, EMFILE, EINVAL}) {
    EXPECT_THAT(RingRefused(error),
                StatusIs(ErrorCode::kUnavailable,
                         HasSubstr("errno " + std::to_string(error))));
  }
}

// All that is asked of a ring with little memory to lock.
TEST(UringSetupTest, MemoryAboveTheLimitIsRefusedWithNumbersAndTheRemedy) {
  AlignedBytes memory(MiB(2));
  std::optional<Status> set_up, registered, file;
  const bool limited = WithMemlockLimit(64 << 10, [&] {
    io_uring ring;
    set_up = SetUpRing(4, &ring);
    if (!set_up->ok()) return;
    registered = RegisterRingMemory(memory.span(), &ring);
    // The ring is as good as before.
    file = RegisterRingFile(0, &ring);
    io_uring_queue_exit(&ring);
  });
  if (!limited) GTEST_SKIP() << "the limit of locked memory cannot be set";
  if (!set_up->ok()) GTEST_SKIP() << *set_up;
  EXPECT_THAT(*registered,
              StatusIs(ErrorCode::kUnavailable,
                       AllOf(HasSubstr("2097152 B are to be registered"),
                             HasSubstr("locked memory is 65536 B"),
                             HasSubstr("ulimit -l"))));
  EXPECT_THAT(*file, IsOk());
}

TEST(UringSetupTest, ABadDescriptorIsNotRegistered) {
  io_uring ring;
  if (const Status status = SetUpRing(4, &ring); !status.ok()) {
    GTEST_SKIP() << status;
  }
  EXPECT_THAT(RegisterRingFile(1 << 20, &ring),
              StatusIs(ErrorCode::kUnavailable, HasSubstr("errno 9")));
  io_uring_queue_exit(&ring);
}

}  // namespace
}  // namespace castor
