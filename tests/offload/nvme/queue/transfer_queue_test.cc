// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/queue/transfer_queue.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/nvme/queue/io_queue.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::ElementsAre;
using Transfer = TransferQueue::Transfer;

constexpr IoPriority kNow = IoPriority::kDemand;
constexpr IoPriority kAhead = IoPriority::kPrefetch;
constexpr IoPriority kBack = IoPriority::kWriteBack;

// How each request ended, by the order in which they were made.
class TransferQueueTest : public testing::Test {
 protected:
  IoRequest Request(IoDirection direction, Bytes offset, Bytes size,
                    IoPriority priority = IoPriority::kDemand) {
    const size_t index = ended_.size();
    ended_.emplace_back();
    return {.direction = direction,
            .priority = priority,
            .fd = -1,
            .offset = offset,
            .data = data_,
            .size = size,
            .done = [this, index](const Status& status) {
              ended_[index].push_back(status);
            }};
  }
  // Answers everything in full at its end.
  struct Queue : TransferQueue {
    using TransferQueue::TransferQueue;
    ~Queue() {
      Close();
      Transfer transfer;
      while (WaitNext(&transfer)) {
        EXPECT_FALSE(Advance(&transfer, transfer.size.count()));
      }
      EXPECT_TRUE(drained());
    }
  };

  IoRequest Read(Bytes offset, Bytes size, IoPriority priority = kNow) {
    return Request(IoDirection::kRead, offset, size, priority);
  }
  IoRequest Write(Bytes offset, Bytes size, IoPriority priority = kNow) {
    return Request(IoDirection::kWrite, offset, size, priority);
  }

  // Moves the next transfer in full. Where it was.
  static Bytes RunOne(TransferQueue& queue) {
    Transfer transfer;
    EXPECT_TRUE(queue.TryNext(&transfer));
    const Bytes place = transfer.offset;
    EXPECT_FALSE(queue.Advance(&transfer, transfer.size.count()));
    return place;
  }
  // All that wait.
  static std::vector<Bytes> RunAll(TransferQueue& queue) {
    std::vector<Bytes> order;
    Transfer transfer;
    while (queue.TryNext(&transfer)) {
      order.push_back(transfer.offset);
      EXPECT_FALSE(queue.Advance(&transfer, transfer.size.count()));
    }
    return order;
  }

  std::byte data_[1];  // only addresses are computed
  std::vector<std::vector<Status>> ended_;
};

// Also one of more than 2 GiB, of which TensorNVMe loses the rest (D13).
TEST_F(TransferQueueTest, CutsARequestIntoPiecesThatCoverIt) {
  for (const Bytes piece : {KiB(4), MiB(1), MiB(512)}) {
    for (const Bytes size : {Bytes(1), KiB(4), MiB(1) + Bytes(1), GiB(3)}) {
      if (size / piece > 2000) continue;
      Queue queue(piece, 16);
      queue.Add(Read(Bytes(100), size));
      Bytes place(100);
      Transfer transfer;
      while (queue.TryNext(&transfer)) {
        EXPECT_EQ(transfer.offset, place);
        EXPECT_EQ(transfer.data - data_, (place - Bytes(100)).count());
        EXPECT_GT(transfer.size, Bytes(0));
        EXPECT_LE(transfer.size, piece);
        place += transfer.size;
        EXPECT_TRUE(ended_.back().empty());
        EXPECT_FALSE(queue.Advance(&transfer, transfer.size.count()));
      }
      EXPECT_EQ(place, Bytes(100) + size);
      EXPECT_THAT(ended_.back(), ElementsAre(IsOk()));
    }
  }
}

TEST_F(TransferQueueTest, HandsOutByPriorityAndEachInOrder) {
  Queue queue(KiB(4), 16);
  queue.Add(Write(KiB(0), KiB(8), kBack));
  queue.Add(Read(KiB(50), KiB(8), kAhead));
  queue.Add(Read(KiB(100), KiB(8), kNow));
  EXPECT_EQ(RunOne(queue), KiB(100));
  queue.Add(Write(KiB(20), KiB(4), kBack));
  queue.Add(Read(KiB(200), KiB(4), kNow));
  queue.Add(Read(KiB(70), KiB(4), kAhead));
  EXPECT_THAT(RunAll(queue), ElementsAre(KiB(104), KiB(200), KiB(50), KiB(54),
                                         KiB(70), KiB(0), KiB(4), KiB(20)));
}

// The rule against starvation, to the letter.
TEST_F(TransferQueueTest, APriorityIsPassedOverSoManyTimesAndNoMore) {
  Queue queue(KiB(4), 3);
  queue.Add(Write(MiB(2), KiB(12), kBack));
  queue.Add(Read(MiB(1), KiB(12), kAhead));
  queue.Add(Read(MiB(0), KiB(48), kNow));
  std::string turns;
  for (const Bytes place : RunAll(queue)) {
    turns += place >= MiB(2) ? 'w' : place >= MiB(1) ? 'p' : 'd';
  }
  // After three of others the prefetch, then at once the write-back, which had
  // four. When nothing else is left, the demand alone.
  EXPECT_EQ(turns, "dddpwdddpwdddpwddd");
}

TEST_F(TransferQueueTest, PatienceBeginsAnewWithEachTurnAndEachArrival) {
  Queue queue(KiB(4), 2);
  queue.Add(Read(MiB(0), KiB(4) * 20, kNow));
  for (int i = 0; i < 5; ++i) EXPECT_LT(RunOne(queue), MiB(1));
  // Nobody waited while those went out.
  queue.Add(Write(MiB(2), KiB(8), kBack));
  EXPECT_LT(RunOne(queue), MiB(1));
  EXPECT_LT(RunOne(queue), MiB(1));
  EXPECT_EQ(RunOne(queue), MiB(2));
  EXPECT_LT(RunOne(queue), MiB(1));
  EXPECT_LT(RunOne(queue), MiB(1));
  EXPECT_EQ(RunOne(queue), MiB(2) + KiB(4));
}

// Under a stream of demand that never ends, everything goes out after at most
// patience others and as many as there are other priorities.
TEST_F(TransferQueueTest, NothingStarvesUnderAnyLoad) {
  std::mt19937_64 random(TestSeed(6));
  for (const int patience : {1, 2, 7, 16}) {
    Queue queue(KiB(4), patience);
    std::array<int, kIoPriorities> waiting = {}, others = {};
    for (int i = 0; i < 5000; ++i) {
      while (waiting[0] == 0 || random() % 2 == 0) {
        const size_t kind = waiting[0] == 0 ? 0 : random() % kIoPriorities;
        queue.Add(Read(MiB(1) * static_cast<int>(kind), KiB(4),
                       static_cast<IoPriority>(kind)));
        if (waiting[kind]++ == 0) others[kind] = 0;
      }
      const size_t kind = static_cast<size_t>(RunOne(queue) / MiB(1));
      --waiting[kind];
      for (size_t k = 0; k < kIoPriorities; ++k) {
        if (waiting[k] == 0) continue;
        others[k] = k == kind ? 0 : others[k] + 1;
        if (k > 0) {
          ASSERT_LE(others[k], patience + kIoPriorities - 1);
        }
      }
    }
  }
}

TEST_F(TransferQueueTest, ARaisedRequestGoesToTheEndOfItsNewPriority) {
  Queue queue(KiB(4), 16);
  const IoTicket write = queue.Add(Write(KiB(0), KiB(4), kBack));
  const IoTicket ahead = queue.Add(Read(KiB(50), KiB(8), kAhead));
  queue.Add(Read(KiB(70), KiB(4), kAhead));
  const IoTicket now = queue.Add(Read(KiB(100), KiB(4), kNow));
  EXPECT_TRUE(queue.Raise(ahead, kNow));
  EXPECT_FALSE(queue.Raise(ahead, kNow)) << "as urgent already";
  EXPECT_FALSE(queue.Raise(now, kAhead)) << "more urgent already";
  EXPECT_TRUE(queue.Raise(write, kAhead));
  EXPECT_FALSE(queue.Raise(IoTicket{99}, kNow));
  EXPECT_EQ(RunOne(queue), KiB(100));
  EXPECT_FALSE(queue.Raise(now, kNow)) << "over";
  EXPECT_THAT(RunAll(queue), ElementsAre(KiB(50), KiB(54), KiB(70), KiB(0)));
}

TEST_F(TransferQueueTest, OnlyWhatIsLeftOfARequestIsRaised) {
  Queue queue(KiB(4), 16);
  const IoTicket ahead = queue.Add(Read(KiB(0), KiB(12), kAhead));
  EXPECT_EQ(RunOne(queue), KiB(0));
  queue.Add(Read(KiB(100), KiB(4), kNow));
  EXPECT_TRUE(queue.Raise(ahead, kNow));
  EXPECT_THAT(RunAll(queue), ElementsAre(KiB(100), KiB(4), KiB(8)));
  EXPECT_THAT(ended_[0], ElementsAre(IsOk()));
}

TEST_F(TransferQueueTest, ACancelledRequestThatWaitedIsOverAtOnce) {
  Queue queue(KiB(4), 16);
  const IoTicket first = queue.Add(Read(KiB(8), KiB(400), kAhead));
  queue.Add(Read(KiB(500), KiB(4), kAhead));
  const IoTicket nothing = queue.Add(Read(KiB(600), Bytes(0), kAhead));
  EXPECT_TRUE(queue.Cancel(first));
  EXPECT_THAT(ended_[0],
              ElementsAre(StatusIs(
                  ErrorCode::kAborted,
                  Says("read of 409600 B at offset 8192 was cancelled"))));
  EXPECT_FALSE(queue.Cancel(first));
  EXPECT_FALSE(queue.Raise(first, kNow));
  EXPECT_TRUE(queue.Cancel(nothing));
  EXPECT_THAT(RunAll(queue), ElementsAre(KiB(500)));
  EXPECT_EQ(ended_[0].size(), 1u);
  EXPECT_THAT(ended_[2], ElementsAre(StatusIs(ErrorCode::kAborted)));
}

TEST_F(TransferQueueTest, ACancelledRequestWaitsForWhatIsWithTheDrive) {
  Queue queue(KiB(4), 16);
  const IoTicket ticket = queue.Add(Read(KiB(0), KiB(16), kAhead));
  Transfer first, second;
  ASSERT_TRUE(queue.TryNext(&first));
  ASSERT_TRUE(queue.TryNext(&second));
  EXPECT_TRUE(queue.Cancel(ticket));
  EXPECT_FALSE(queue.Cancel(ticket));
  EXPECT_TRUE(ended_[0].empty()) << "its memory is in use";
  // A short transfer of it is still resumed.
  EXPECT_TRUE(queue.Advance(&second, 1000));
  EXPECT_FALSE(queue.Advance(&second, 3096));
  EXPECT_TRUE(ended_[0].empty());
  EXPECT_FALSE(queue.Advance(&first, -EIO));
  EXPECT_THAT(ended_[0], ElementsAre(StatusIs(ErrorCode::kAborted)));
  EXPECT_FALSE(queue.TryNext(&first));
}

TEST_F(TransferQueueTest, WhatHasGoneOutWholeCannotBeCancelled) {
  Queue queue(KiB(4), 16);
  const IoTicket ticket = queue.Add(Read(KiB(0), KiB(4), kNow));
  Transfer transfer;
  ASSERT_TRUE(queue.TryNext(&transfer));
  EXPECT_FALSE(queue.Cancel(ticket));
  EXPECT_FALSE(queue.Raise(ticket, kNow));
  EXPECT_FALSE(queue.Advance(&transfer, 4096));
  EXPECT_THAT(ended_[0], ElementsAre(IsOk()));
}

TEST_F(TransferQueueTest, KeepsTransfersOfSeveralRequestsOutAtOnce) {
  Queue queue(KiB(4), 16);
  for (int i = 0; i < 4; ++i) {
    queue.Add(Read(KiB(4) * i, KiB(4)));
  }
  std::vector<Transfer> out(4);
  for (Transfer& transfer : out) ASSERT_TRUE(queue.TryNext(&transfer));
  for (Transfer& transfer : out) queue.Advance(&transfer, 4096);
  for (const auto& ended : ended_) {
    EXPECT_THAT(ended, ElementsAre(IsOk()));
  }
}

// TensorNVMe takes every transfer for whole (defect D13).
TEST_F(TransferQueueTest, ResumesShortTransfersWhereTheyStopped) {
  const uint64_t seed = TestSeed(5);
  std::mt19937_64 random(seed);
  Queue queue(MiB(1), 16);
  queue.Add(Write(Bytes(7), MiB(3)));
  Transfer transfer;
  Bytes moved;
  while (queue.TryNext(&transfer)) {
    const Transfer whole = transfer;
    int64_t answer = 0;
    do {
      EXPECT_EQ(transfer.offset + transfer.size, whole.offset + whole.size);
      EXPECT_EQ(transfer.data - whole.data,
                (transfer.offset - whole.offset).count());
      answer =
          random() % 4 == 0
              ? (random() % 2 == 0 ? -EINTR : -EAGAIN)
              : static_cast<int64_t>(
                    random() % static_cast<uint64_t>(transfer.size.count())) +
                    1;
      if (answer > 0) moved += Bytes(answer);
    } while (queue.Advance(&transfer, answer));
  }
  EXPECT_EQ(moved, MiB(3));
  EXPECT_THAT(ended_[0], ElementsAre(IsOk()));
}

TEST_F(TransferQueueTest, GivesUpOnACallThatIsInterruptedForEver) {
  for (const int error : {EINTR, EAGAIN}) {
    Queue queue(MiB(1), 16);
    queue.Add(Read(Bytes(0), KiB(4)));
    Transfer transfer;
    ASSERT_TRUE(queue.TryNext(&transfer));
    int tries = 1;
    while (queue.Advance(&transfer, -error)) ++tries;
    EXPECT_GT(tries, 100);
    EXPECT_THAT(ended_.back(), ElementsAre(StatusIs(ErrorCode::kIoError)));
  }
}

TEST_F(TransferQueueTest, AFailureEndsTheRequestOnceAndNamesThePlace) {
  Queue queue(KiB(4), 16);
  queue.Add(Read(KiB(16), KiB(400)));
  queue.Add(Read(KiB(900), KiB(4)));
  Transfer first, second, third, other;
  ASSERT_TRUE(queue.TryNext(&first));
  ASSERT_TRUE(queue.TryNext(&second));
  ASSERT_TRUE(queue.TryNext(&third));
  EXPECT_TRUE(queue.Advance(&second, 1000));
  EXPECT_FALSE(queue.Advance(&second, -EIO));
  EXPECT_FALSE(queue.Advance(&third, -ENXIO));
  EXPECT_TRUE(ended_[0].empty()) << "a transfer is still in flight";
  // What had not gone out is cancelled; the next request follows.
  ASSERT_TRUE(queue.TryNext(&other));
  EXPECT_EQ(other.offset, KiB(900));
  EXPECT_FALSE(queue.Advance(&first, 4096));
  EXPECT_THAT(ended_[0],
              ElementsAre(StatusIs(ErrorCode::kIoError,
                                   Says("reading 3096 B at offset 21480 failed",
                                        "Input/output error (errno 5)"))));
  EXPECT_FALSE(queue.Advance(&other, 4096));
  EXPECT_THAT(ended_[1], ElementsAre(IsOk()));
  EXPECT_FALSE(queue.TryNext(&other));
}

TEST_F(TransferQueueTest, AnAnswerOfNoBytesIsAFailure) {
  for (const IoDirection direction :
       {IoDirection::kRead, IoDirection::kWrite}) {
    Queue queue(KiB(4), 16);
    queue.Add(Request(direction, Bytes(0), KiB(4)));
    Transfer transfer;
    ASSERT_TRUE(queue.TryNext(&transfer));
    EXPECT_FALSE(queue.Advance(&transfer, 0));
    EXPECT_THAT(ended_.back(),
                ElementsAre(StatusIs(ErrorCode::kIoError, Says("no byte"))));
  }
}

TEST_F(TransferQueueTest, EndsWhenClosedAndEverythingIsDone) {
  Queue queue(KiB(4), 16);
  queue.Add(Read(Bytes(0), Bytes(0)));
  EXPECT_FALSE(queue.drained());
  queue.Close();
  EXPECT_TRUE(queue.closed());
  EXPECT_FALSE(queue.drained());
  Transfer transfer;
  ASSERT_TRUE(queue.WaitNext(&transfer));
  EXPECT_EQ(transfer.size, Bytes(0));
  EXPECT_FALSE(queue.Advance(&transfer, 0));
  EXPECT_THAT(ended_[0], ElementsAre(IsOk()));
  EXPECT_TRUE(queue.drained());
  EXPECT_FALSE(queue.WaitNext(&transfer));
}

}  // namespace
}  // namespace castor
