// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/io_queue_factory.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/nvme/uring_io_queue.h"
#include "tests/support/io_queue_contract.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<IoQueue> MakeQueue(const IoQueueOptions& options,
                                   std::string*) {
  return MakeIoQueue(options, nullptr);
}
INSTANTIATE_TEST_SUITE_P(Best, IoQueueContract, testing::Values(&MakeQueue));

// Runs `body` on a thread to which the kernel answers every io_uring_setup with
// `error`, as a container's profile does; threads that it starts inherit that.
// False where the kernel allows no such filter.
bool WithoutUring(int error, const std::function<void()>& body) {
  bool filtered = false;
  std::thread([&] {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K,
                 SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog filter = {.len = std::size(program), .filter = program};
    filtered = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
               ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
    if (filtered) body();
  }).join();
  return filtered;
}

TEST(IoQueueFactoryTest, FallsBackToThreadsAndSaysSoOnce) {
  std::vector<std::string> said;
  Log log([&](LogLevel level, std::string_view line) {
    EXPECT_EQ(level, LogLevel::kWarning);
    said.emplace_back(line);
  });
  const bool filtered = WithoutUring(ENOSYS, [&] {
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(MakeIoQueue({.threads = 3}, &log)->name(), "threads");
    }
    EXPECT_EQ(MakeIoQueue({}, nullptr)->name(), "threads");
  });
  if (!filtered) GTEST_SKIP() << "the kernel allows no seccomp filter";
  EXPECT_THAT(said, ElementsAre(AllOf(HasSubstr("3 blocking threads"),
                                      HasSubstr("Function not implemented"),
                                      HasSubstr("Linux 5.6"))));
}

TEST(IoQueueFactoryTest, ARefusalNamesTheReasonAndTheRemedy) {
  const bool filtered = WithoutUring(EPERM, [&] {
    EXPECT_THAT(MakeUringIoQueue({}),
                StatusIs(ErrorCode::kUnavailable,
                         AllOf(HasSubstr("Operation not permitted"),
                               HasSubstr("io_uring_disabled"))));
  });
  if (!filtered) GTEST_SKIP() << "the kernel allows no seccomp filter";
}

}  // namespace
}  // namespace castor
