// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/queue/uring_io_queue.h"

#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/nvme/queue/uring_setup.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/contracts/io_queue_contract.h"
#include "tests/support/status_matchers.h"
#include "tests/support/without_uring.h"

namespace castor {
namespace {

std::unique_ptr<IoQueue> MakeQueue(const IoQueueOptions& options,
                                   std::string* skip_reason) {
  auto queue = MakeUringIoQueue(options);
  if (queue.ok()) return std::move(queue).value();
  *skip_reason = queue.status().ToString();
  return nullptr;
}
INSTANTIATE_TEST_SUITE_P(Uring, IoQueueContract, testing::Values(&MakeQueue));

// A pipe moves what is there, so that the kernel itself answers short: what is
// written in bits of 10,000 bytes is read in transfers of up to 64 KiB.
class UringIoQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    out_ = UniqueFd(fds[0]);
    in_ = UniqueFd(fds[1]);
    auto queue = MakeUringIoQueue({.depth = 1, .piece = KiB(256)});
    if (!queue.ok()) GTEST_SKIP() << queue.status();
    queue_ = std::move(queue).value();
  }

  std::future<Status> Submit(IoDirection direction,
                             std::span<std::byte> bytes) {
    const bool read = direction == IoDirection::kRead;
    return SubmitTo(*queue_, direction, read ? out_.get() : in_.get(), Bytes(0),
                    bytes);
  }

  UniqueFd out_, in_;
  std::unique_ptr<IoQueue> queue_;
};

TEST_F(UringIoQueueTest, ResumesShortReads) {
  AlignedBytes sent(MiB(1) + Bytes(77)), read(MiB(1) + Bytes(77));
  FillRandom(sent.span(), 21);
  auto done = Submit(IoDirection::kRead, read.span());
  for (std::span<const std::byte> rest = sent.span(); !rest.empty();) {
    const ssize_t count =
        ::write(in_.get(), rest.data(), std::min<size_t>(rest.size(), 10000));
    ASSERT_GT(count, 0);
    rest = rest.subspan(static_cast<size_t>(count));
  }
  EXPECT_THAT(done.get(), IsOk());
  EXPECT_TRUE(SameBytes(read.span(), sent.span()));
}

TEST_F(UringIoQueueTest, ResumesShortWrites) {
  AlignedBytes sent(MiB(2) + Bytes(5)), got(MiB(2) + Bytes(5));
  FillRandom(sent.span(), 22);
  auto done = Submit(IoDirection::kWrite, sent.span());
  for (std::span<std::byte> rest = got.span(); !rest.empty();) {
    const ssize_t count =
        ::read(out_.get(), rest.data(), std::min<size_t>(rest.size(), 10000));
    ASSERT_GT(count, 0);
    rest = rest.subspan(static_cast<size_t>(count));
  }
  EXPECT_THAT(done.get(), IsOk());
  EXPECT_TRUE(SameBytes(got.span(), sent.span()));
}

TEST_F(UringIoQueueTest, FailsAReadWhoseSourceEndsInTheMiddle) {
  AlignedBytes bytes(KiB(64));
  auto done = Submit(IoDirection::kRead, bytes.span());
  ASSERT_EQ(::write(in_.get(), bytes.data(), 5000), 5000);
  in_.Close();
  EXPECT_THAT(done.get(), StatusIs(ErrorCode::kIoError, Says("offset 5000")));
}

// With two transfers in flight, both waiting for a pipe, a third waits; when
// one ends, the third starts at once, and not when the queue has run empty.
TEST(UringIoQueueDepthTest, IsKeptFullAcrossRequestsAndNotOverfilled) {
  auto queue = MakeUringIoQueue({.depth = 2});
  if (!queue.ok()) GTEST_SKIP() << queue.status();
  struct Pipe {
    UniqueFd out, in;
    AlignedBytes bytes{KiB(4)};
    std::future<Status> read;
  };
  std::vector<Pipe> pipes(3);
  for (Pipe& pipe : pipes) {
    int fds[2];
    ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    pipe.out = UniqueFd(fds[0]);
    pipe.in = UniqueFd(fds[1]);
    pipe.read = SubmitTo(**queue, IoDirection::kRead, pipe.out.get(), Bytes(0),
                         pipe.bytes.span());
  }
  auto feed = [](Pipe& pipe) {
    const AlignedBytes bytes(KiB(4));
    ASSERT_EQ(::write(pipe.in.get(), bytes.data(), 4096), 4096);
  };
  // The third has its bytes, but no place.
  feed(pipes[2]);
  EXPECT_EQ(pipes[2].read.wait_for(std::chrono::milliseconds(50)),
            std::future_status::timeout);
  feed(pipes[1]);
  EXPECT_THAT(pipes[1].read.get(), IsOk());
  EXPECT_THAT(pipes[2].read.get(), IsOk());
  EXPECT_EQ(pipes[0].read.wait_for(std::chrono::seconds(0)),
            std::future_status::timeout);
  feed(pipes[0]);
  EXPECT_THAT(pipes[0].read.get(), IsOk());
}

TEST(UringSetupTest, ARefusalNamesTheReasonAndTheRemedy) {
  Status status;
  const bool filtered = WithoutUring(EPERM, [&] {
    io_uring ring;
    status = SetUpRing(8, &ring);
  });
  if (!filtered) GTEST_SKIP() << "the kernel allows no seccomp filter";
  EXPECT_THAT(status,
              StatusIs(ErrorCode::kUnavailable,
                       Says("Operation not permitted", "io_uring_disabled")));
}

TEST(UringSetupTest, EveryReasonHasARemedy) {
  for (const int error : {ENOSYS, EPERM, EACCES, ENOMEM, EMFILE, EINVAL}) {
    EXPECT_THAT(RingRefused(error),
                StatusIs(ErrorCode::kUnavailable,
                         Says("errno " + std::to_string(error))));
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
                       Says("2097152 B are to be registered",
                            "locked memory is 65536 B", "ulimit -l")));
  EXPECT_THAT(*file, IsOk());
}

TEST(UringSetupTest, ABadDescriptorIsNotRegistered) {
  io_uring ring;
  if (const Status status = SetUpRing(4, &ring); !status.ok()) {
    GTEST_SKIP() << status;
  }
  EXPECT_THAT(RegisterRingFile(1 << 20, &ring),
              StatusIs(ErrorCode::kUnavailable, Says("errno 9")));
  io_uring_queue_exit(&ring);
}

}  // namespace
}  // namespace castor
