// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/queue/thread_io_queue.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"
#include "offload/lanes/timer.h"
#include "offload/lanes/virtual_executor.h"
#include "offload/nvme/queue/simulated_io_queue.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/contracts/io_queue_contract.h"
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

// The contract of every queue, on both clocks; and the time that transfers
// take.

// Fast enough for gigabytes, and never at once.
SimulatedLinks FastDrive() {
  TierModel model;
  model.nvme_read = LinkModel{40'000'000'000, 2'000};
  model.nvme_write = LinkModel{20'000'000'000, 1'000};
  return SimulatedLinks(DriveModelOf(model));
}

std::unique_ptr<IoQueue> OnTheRealClock(const IoQueueOptions& options,
                                        std::string*) {
  static SimulatedLinks drive = FastDrive();
  static SteadyTimer timer;
  static ThreadPool pool(2);
  return MakeSimulatedIoQueue(
      {.queue = options, .links = &drive, .executor = &pool, .timer = &timer});
}

std::unique_ptr<IoQueue> OnAVirtualClock(const IoQueueOptions& options,
                                         std::string*) {
  static SimulatedLinks drive = FastDrive();
  static VirtualExecutor world;
  return MakeSimulatedIoQueue(
      {.queue = options, .links = &drive, .executor = &world, .timer = &world});
}

INSTANTIATE_TEST_SUITE_P(Simulated, IoQueueContract,
                         testing::Values(&OnTheRealClock, &OnAVirtualClock));

constexpr LinkModel kRead{1'000'000'000, 100'000};  // a nanosecond a byte
constexpr LinkModel kWrite{500'000'000, 50'000};    // two

// A file of 8 MiB in a world whose time is counted.
class SimulatedIoQueueTest : public testing::Test {
 protected:
  SimulatedIoQueueTest() : fd_(OpenFile(dir_.File("data"))) {
    EXPECT_EQ(::ftruncate(fd_.get(), MiB(8).count()), 0);
  }

  void Make(std::optional<LinkModel> read, std::optional<LinkModel> write,
            IoQueueOptions options = {}) {
    TierModel model;
    model.nvme_read = read;
    model.nvme_write = write;
    drive_.emplace(DriveModelOf(model));
    queue_ = MakeSimulatedIoQueue({.queue = options,
                                   .links = &*drive_,
                                   .executor = &world_,
                                   .timer = &world_});
  }

  // Notes when it ended, as the next of `ends_`.
  Event Submit(IoDirection direction, Bytes size,
               IoPriority priority = IoPriority::kDemand) {
    const EventSource source;
    queue_->Submit({.direction = direction,
                    .priority = priority,
                    .fd = fd_.get(),
                    .offset = Bytes(0),
                    .data = bytes_.data(),
                    .size = size,
                    .done = [this, source, priority](const Status& status) {
                      ends_.push_back({priority, world_.NowNs()});
                      source.Complete(status);
                    }});
    return source.event();
  }

  using End = std::pair<IoPriority, int64_t>;

  TempDir dir_;
  UniqueFd fd_;
  AlignedBytes bytes_{MiB(8)};
  VirtualExecutor world_;
  VirtualParticipant participant_{&world_};
  std::optional<SimulatedLinks> drive_;
  std::vector<End> ends_;  // touched by the executor, and when it stands still
  std::unique_ptr<IoQueue> queue_;
};

TEST_F(SimulatedIoQueueTest, OneRequestTakesALatencyAndItsBytes) {
  Make(kRead, kWrite);
  EXPECT_EQ(queue_->name(), "simulated");
  EXPECT_THAT(Submit(IoDirection::kRead, MiB(3) + KiB(4)).Wait(), IsOk());
  EXPECT_EQ(world_.NowNs(), 100'000 + (MiB(3) + KiB(4)).count());
  const int64_t begin = world_.NowNs();
  EXPECT_THAT(Submit(IoDirection::kWrite, KiB(8)).Wait(), IsOk());
  EXPECT_EQ(world_.NowNs() - begin, 50'000 + 2 * KiB(8).count());
  EXPECT_EQ(drive_->use(CopyKind::kToDevice).bytes, MiB(3) + KiB(4));
  EXPECT_EQ(drive_->use(CopyKind::kFromDevice).bytes, KiB(8));
}

TEST_F(SimulatedIoQueueTest, ReadsAndWritesShareTheWire) {
  Make(kRead, kWrite);
  const Event read = Submit(IoDirection::kRead, MiB(1));
  const Event write = Submit(IoDirection::kWrite, MiB(1));
  EXPECT_THAT(read.Wait(), IsOk());
  EXPECT_EQ(world_.NowNs(), 100'000 + MiB(1).count());
  EXPECT_THAT(write.Wait(), IsOk());
  EXPECT_EQ(world_.NowNs(), 100'000 + 3 * MiB(1).count());
}

TEST_F(SimulatedIoQueueTest, WhatWaitsGoesOutByPriority) {
  Make(kRead, kWrite, {.depth = 1});
  const auto back = IoPriority::kWriteBack;
  const Event events[] = {
      Submit(IoDirection::kWrite, KiB(4), back),
      Submit(IoDirection::kWrite, KiB(4), back),
      Submit(IoDirection::kRead, KiB(4), IoPriority::kPrefetch),
      Submit(IoDirection::kRead, KiB(4))};
  EXPECT_THAT(AllOf(events).Wait(), IsOk());
  // One after the other, each with its latency.
  constexpr int64_t kWriteNs = 50'000 + 2 * 4096;
  constexpr int64_t kReadNs = 100'000 + 4096;
  EXPECT_THAT(ends_, testing::ElementsAre(
                         End(back, kWriteNs),
                         End(IoPriority::kDemand, kWriteNs + kReadNs),
                         End(IoPriority::kPrefetch, kWriteNs + 2 * kReadNs),
                         End(back, 2 * kWriteNs + 2 * kReadNs)));
}

TEST_F(SimulatedIoQueueTest, AnUnknownDirectionTakesNoTime) {
  Make(kRead, std::nullopt);
  EXPECT_THAT(Submit(IoDirection::kWrite, MiB(4)).Wait(), IsOk());
  EXPECT_EQ(world_.NowNs(), 0);
  EXPECT_THAT(Submit(IoDirection::kRead, KiB(4)).Wait(), IsOk());
  EXPECT_EQ(world_.NowNs(), 104'096);
}

TEST(SimulatedIoQueueTimeTest, TakesAtLeastTheModelledTimeOnTheRealClock) {
  TempDir dir;
  const UniqueFd fd = OpenFile(dir.File("data"));
  AlignedBytes bytes(KiB(256));
  TierModel model;
  model.nvme_write = LinkModel{100'000'000, 1'000'000};
  SimulatedLinks drive(DriveModelOf(model));
  SteadyTimer timer;
  ThreadPool pool(1);
  auto queue = MakeSimulatedIoQueue(
      {.links = &drive, .executor = &pool, .timer = &timer});
  const int64_t begin = timer.NowNs();
  EXPECT_THAT(
      SubmitTo(*queue, IoDirection::kWrite, fd.get(), Bytes(0), bytes.span())
          .get(),
      IsOk());
  EXPECT_GE(timer.NowNs() - begin, 1'000'000 + 2'621'440);
}

}  // namespace
}  // namespace castor
