// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/io_queue_factory.h"

#include <cerrno>
#include <string>
#include <vector>

#include "chunk/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/io_queue_contract.h"
#include "tests/support/without_uring.h"

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

}  // namespace
}  // namespace castor
