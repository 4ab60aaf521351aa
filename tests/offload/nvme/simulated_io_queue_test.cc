// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The contract of every queue, on both clocks; and the time that transfers
// take.

#include "offload/nvme/simulated_io_queue.h"

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/event.h"
#include "offload/executor.h"
#include "offload/timer.h"
#include "offload/virtual_executor.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/io_queue_contract.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

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
