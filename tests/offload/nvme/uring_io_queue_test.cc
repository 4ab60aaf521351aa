// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/uring_io_queue.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/io_queue_contract.h"

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
    auto promise = std::make_shared<std::promise<Status>>();
    queue_->Submit(
        {.direction = direction,
         .fd = direction == IoDirection::kRead ? out_.get() : in_.get(),
         .offset = Bytes(0),
         .data = bytes.data(),
         .size = Bytes(static_cast<int64_t>(bytes.size())),
         .done = [promise](const Status& status) {
           promise->set_value(status);
         }});
    return promise->get_future();
  }

  UniqueFd out_, in_;
  std::unique_ptr<IoQueue> queue_;
};

TEST_F(UringIoQueueTest, SaysWhatItIs) {
  EXPECT_EQ(queue_->name(), "io_uring");
}

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
  EXPECT_THAT(done.get(),
              StatusIs(ErrorCode::kIoError, testing::HasSubstr("offset 5000")));
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
    auto promise = std::make_shared<std::promise<Status>>();
    pipe.read = promise->get_future();
    (*queue)->Submit({.direction = IoDirection::kRead,
                      .fd = pipe.out.get(),
                      .offset = Bytes(0),
                      .data = pipe.bytes.data(),
                      .size = KiB(4),
                      .done = [promise](const Status& status) {
                        promise->set_value(status);
                      }});
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

}  // namespace
}  // namespace castor
