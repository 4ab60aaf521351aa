// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/nvme_drive.h"

#include <fcntl.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/nvme/thread_io_queue.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Refuses to register anything.
class UnwillingQueue final : public IoQueue {
 public:
  IoTicket Submit(IoRequest) override { return {}; }
  bool Raise(IoTicket, IoPriority) override { return false; }
  bool Cancel(IoTicket) override { return false; }
  Status RegisterFile(int) override { return Unavailable("no files"); }
  Result<Bytes> RegisterMemory(std::span<std::byte>) override {
    return Unavailable("no memory");
  }
  std::string_view name() const override { return "unwilling"; }
};

TEST(NvmeDriveTest, HasAFileOfItsSizeUntilItIsClosed) {
  TempDir dir;
  auto drive =
      NvmeDrive::Open({dir.path(), MiB(1)}, MakeThreadIoQueue({}), nullptr);
  ASSERT_THAT(drive, IsOk());
  EXPECT_EQ((*drive)->size(), MiB(1));
  EXPECT_EQ(std::filesystem::file_size((*drive)->file()), 1u << 20);
  EXPECT_EQ((*drive)->direct(),
            (::fcntl((*drive)->fd(), F_GETFL) & O_DIRECT) != 0);
  EXPECT_EQ((*drive)->queue().name(), "threads");
  EXPECT_THAT((*drive)->Close(), IsOk());
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_THAT((*drive)->Close(), IsOk());
}

TEST(NvmeDriveTest, WhatTheQueueDoesNotRegisterIsSaidOncePerLog) {
  TempDir dir;
  std::vector<std::string> said;
  Log log([&](LogLevel, std::string_view line) { said.emplace_back(line); });
  AlignedBytes memory(KiB(8));
  for (int rank = 0; rank < 2; ++rank) {
    auto drive = NvmeDrive::Open({dir.path(), KiB(4)},
                                 std::make_unique<UnwillingQueue>(), &log);
    ASSERT_THAT(drive, IsOk());
    (*drive)->RegisterMemory(memory.span());
    EXPECT_EQ((*drive)->registered(), Bytes(0));
  }
  EXPECT_THAT(said, testing::IsSupersetOf(
                        {HasSubstr("no files"),
                         HasSubstr("pin their memory each time, which takes "
                                   "processor time: no memory")}));
  EXPECT_LE(said.size(), 3u) << "O_DIRECT may be refused here";
}

TEST(NvmeDriveTest, LeavesNothingBehindWhereItCannotBeMade) {
  TempDir dir;
  EXPECT_THAT(
      NvmeDrive::Open({dir.path(), KiB(5)}, MakeThreadIoQueue({}), nullptr),
      StatusIs(ErrorCode::kInvalidArgument,
               AllOf(HasSubstr("5120 B"), HasSubstr("multiple of 4096 B"))));
  EXPECT_THAT(NvmeDrive::Open({dir.path(), KiB(4) * (int64_t{1} << 50)},
                              MakeThreadIoQueue({}), nullptr),
              StatusIs(ErrorCode::kUnavailable));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace castor
