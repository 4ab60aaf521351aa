// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/thread_io_queue.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/io_queue_contract.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

std::unique_ptr<IoQueue> MakeQueue(const IoQueueOptions& options,
                                   std::string*) {
  return MakeThreadIoQueue(options);
}
INSTANTIATE_TEST_SUITE_P(Threads, IoQueueContract, testing::Values(&MakeQueue));

// Moves some of what was asked, is interrupted, asks to be called again.
FileCalls Capricious(uint64_t seed) {
  auto random = std::make_shared<std::mt19937_64>(seed);
  auto mutex = std::make_shared<std::mutex>();
  auto whim = [random, mutex](size_t size) -> ssize_t {
    std::lock_guard lock(*mutex);
    switch ((*random)() % 5) {
      case 0:
        errno = EINTR;
        return -1;
      case 1:
        errno = EAGAIN;
        return -1;
      case 2:
        return static_cast<ssize_t>(size);
      default:
        return static_cast<ssize_t>((*random)() % size + 1);
    }
  };
  FileCalls calls;
  calls.pread = [whim](int fd, void* data, size_t size, off_t offset) {
    const ssize_t some = whim(size);
    return some < 0 ? some
                    : ::pread(fd, data, static_cast<size_t>(some), offset);
  };
  calls.pwrite = [whim](int fd, const void* data, size_t size, off_t offset) {
    const ssize_t some = whim(size);
    return some < 0 ? some
                    : ::pwrite(fd, data, static_cast<size_t>(some), offset);
  };
  return calls;
}

TEST(ThreadIoQueueTest, ResumesShortAndInterruptedCalls) {
  const uint64_t seed = TestSeed(11);
  TempDir dir;
  const UniqueFd fd = OpenFile(dir.File("data"));
  auto queue =
      MakeThreadIoQueue({.piece = KiB(64), .threads = 3}, Capricious(seed));
  AlignedBytes written(MiB(4) + Bytes(3)), read(MiB(4) + Bytes(3));
  FillRandom(written.span(), seed);
  ASSERT_THAT(
      SubmitTo(*queue, IoDirection::kWrite, fd.get(), Bytes(0), written.span())
          .get(),
      IsOk());
  ASSERT_THAT(
      SubmitTo(*queue, IoDirection::kRead, fd.get(), Bytes(0), read.span())
          .get(),
      IsOk());
  EXPECT_TRUE(SameBytes(read.span(), written.span()));
}

TEST(ThreadIoQueueTest, ReportsTheCallThatFailed) {
  std::atomic<int> calls_made = 0;
  FileCalls calls;
  calls.pread = [&](int, void*, size_t size, off_t offset) -> ssize_t {
    ++calls_made;
    if (offset != 8192) return static_cast<ssize_t>(size);
    errno = EIO;
    return -1;
  };
  AlignedBytes bytes(MiB(4));
  Status status;
  {
    auto queue = MakeThreadIoQueue({.piece = KiB(4), .threads = 1}, calls);
    status =
        SubmitTo(*queue, IoDirection::kRead, 3, Bytes(0), bytes.span()).get();
  }
  EXPECT_THAT(status, StatusIs(ErrorCode::kIoError,
                               Says("reading 4096 B at offset 8192 "
                                    "failed: Input/output error")));
  // The rest was cancelled.
  EXPECT_EQ(calls_made, 3);
}

TEST(ThreadIoQueueTest, StartsDemandBeforePrefetchBeforeWriteBack) {
  std::promise<void> started, go;
  std::vector<std::string> order;  // by the queue's only thread
  FileCalls calls;
  calls.pwrite = [&](int fd, const void*, size_t size, off_t) -> ssize_t {
    if (order.empty()) {
      started.set_value();
      go.get_future().wait();
    }
    order.push_back("write " + std::to_string(fd));
    return static_cast<ssize_t>(size);
  };
  calls.pread = [&](int fd, void*, size_t size, off_t) -> ssize_t {
    order.push_back("read " + std::to_string(fd));
    return static_cast<ssize_t>(size);
  };
  AlignedBytes bytes(KiB(4));
  {
    auto queue = MakeThreadIoQueue({.threads = 1}, calls);
    const auto back = IoPriority::kWriteBack;
    SubmitTo(*queue, IoDirection::kWrite, 1, Bytes(0), bytes.span(), back);
    started.get_future().wait();
    SubmitTo(*queue, IoDirection::kWrite, 2, Bytes(0), bytes.span(), back);
    SubmitTo(*queue, IoDirection::kRead, 6, Bytes(0), bytes.span(),
             IoPriority::kPrefetch);
    SubmitTo(*queue, IoDirection::kRead, 3, Bytes(0), bytes.span());
    SubmitTo(*queue, IoDirection::kWrite, 4, Bytes(0), bytes.span(), back);
    SubmitTo(*queue, IoDirection::kRead, 5, Bytes(0), bytes.span());
    go.set_value();
  }
  EXPECT_THAT(order, testing::ElementsAre("write 1", "read 3", "read 5",
                                          "read 6", "write 2", "write 4"));
}

}  // namespace
}  // namespace castor
