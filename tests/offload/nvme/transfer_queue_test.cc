// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/transfer_queue.h"

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
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Transfer = TransferQueue::Transfer;

// How each request ended, by the order in which they were made.
class TransferQueueTest : public testing::Test {
 protected:
  IoRequest Request(IoDirection direction, Bytes offset, Bytes size) {
    const size_t index = ended_.size();
    ended_.emplace_back();
    return {.direction = direction,
            .fd = -1,
            .offset = offset,
            .data = data_,
            .size = size,
            .done = [this, index](const Status& status) {
              ended_[index].push_back(status);
            }};
  }
  // Answers everything in full.
  static void Drain(TransferQueue& queue) {
    queue.Close();
    Transfer transfer;
    while (queue.WaitNext(&transfer)) {
      EXPECT_FALSE(queue.Advance(&transfer, transfer.size.count()));
    }
    EXPECT_TRUE(queue.drained());
  }

  std::byte data_[1];  // only addresses are computed
  std::vector<std::vector<Status>> ended_;
};

TEST_F(TransferQueueTest, CutsARequestIntoPiecesThatCoverIt) {
  for (const Bytes piece : {KiB(4), MiB(1), MiB(512)}) {
    for (const Bytes size : {Bytes(1), KiB(4), MiB(1) + Bytes(1), GiB(3)}) {
      if (size / piece > 2000) continue;
      TransferQueue queue(piece);
      queue.Add(Request(IoDirection::kRead, Bytes(100), size));
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
      EXPECT_THAT(ended_.back(), testing::ElementsAre(IsOk()));
      Drain(queue);
    }
  }
}

TEST_F(TransferQueueTest, HandsOutReadsBeforeWritesAndEachInOrder) {
  TransferQueue queue(KiB(4));
  queue.Add(Request(IoDirection::kWrite, KiB(0), KiB(8)));
  queue.Add(Request(IoDirection::kRead, KiB(100), KiB(8)));
  Transfer transfer;
  ASSERT_TRUE(queue.TryNext(&transfer));
  EXPECT_EQ(transfer.offset, KiB(100));
  queue.Advance(&transfer, transfer.size.count());
  queue.Add(Request(IoDirection::kWrite, KiB(20), KiB(4)));
  queue.Add(Request(IoDirection::kRead, KiB(200), KiB(4)));
  std::vector<Bytes> order;
  while (queue.TryNext(&transfer)) {
    order.push_back(transfer.offset);
    queue.Advance(&transfer, transfer.size.count());
  }
  EXPECT_THAT(
      order, testing::ElementsAre(KiB(104), KiB(200), KiB(0), KiB(4), KiB(20)));
  Drain(queue);
}

TEST_F(TransferQueueTest, KeepsTransfersOfSeveralRequestsOutAtOnce) {
  TransferQueue queue(KiB(4));
  for (int i = 0; i < 4; ++i) {
    queue.Add(Request(IoDirection::kRead, KiB(4) * i, KiB(4)));
  }
  std::vector<Transfer> out(4);
  for (Transfer& transfer : out) ASSERT_TRUE(queue.TryNext(&transfer));
  for (Transfer& transfer : out) queue.Advance(&transfer, 4096);
  for (const auto& ended : ended_) {
    EXPECT_THAT(ended, testing::ElementsAre(IsOk()));
  }
  Drain(queue);
}

TEST_F(TransferQueueTest, ResumesShortTransfersWhereTheyStopped) {
  const uint64_t seed = TestSeed(5);
  std::mt19937_64 random(seed);
  TransferQueue queue(MiB(1));
  queue.Add(Request(IoDirection::kWrite, Bytes(7), MiB(3)));
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
  EXPECT_THAT(ended_[0], testing::ElementsAre(IsOk()));
  Drain(queue);
}

TEST_F(TransferQueueTest, GivesUpOnACallThatIsInterruptedForEver) {
  for (const int error : {EINTR, EAGAIN}) {
    TransferQueue queue(MiB(1));
    queue.Add(Request(IoDirection::kRead, Bytes(0), KiB(4)));
    Transfer transfer;
    ASSERT_TRUE(queue.TryNext(&transfer));
    int tries = 1;
    while (queue.Advance(&transfer, -error)) ++tries;
    EXPECT_GT(tries, 100);
    EXPECT_THAT(ended_.back(),
                testing::ElementsAre(StatusIs(ErrorCode::kIoError)));
    Drain(queue);
  }
}

TEST_F(TransferQueueTest, AFailureEndsTheRequestOnceAndNamesThePlace) {
  TransferQueue queue(KiB(4));
  queue.Add(Request(IoDirection::kRead, KiB(16), KiB(400)));
  queue.Add(Request(IoDirection::kRead, KiB(900), KiB(4)));
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
              testing::ElementsAre(StatusIs(
                  ErrorCode::kIoError,
                  AllOf(HasSubstr("reading 3096 B at offset 21480 failed"),
                        HasSubstr("Input/output error (errno 5)")))));
  EXPECT_FALSE(queue.Advance(&other, 4096));
  EXPECT_THAT(ended_[1], testing::ElementsAre(IsOk()));
  EXPECT_FALSE(queue.TryNext(&other));
  Drain(queue);
}

TEST_F(TransferQueueTest, AnAnswerOfNoBytesIsAFailure) {
  for (const IoDirection direction :
       {IoDirection::kRead, IoDirection::kWrite}) {
    TransferQueue queue(KiB(4));
    queue.Add(Request(direction, Bytes(0), KiB(4)));
    Transfer transfer;
    ASSERT_TRUE(queue.TryNext(&transfer));
    EXPECT_FALSE(queue.Advance(&transfer, 0));
    EXPECT_THAT(ended_.back(), testing::ElementsAre(StatusIs(
                                   ErrorCode::kIoError, HasSubstr("no byte"))));
    Drain(queue);
  }
}

TEST_F(TransferQueueTest, EndsWhenClosedAndEverythingIsDone) {
  TransferQueue queue(KiB(4));
  queue.Add(Request(IoDirection::kRead, Bytes(0), Bytes(0)));
  EXPECT_FALSE(queue.drained());
  queue.Close();
  EXPECT_TRUE(queue.closed());
  EXPECT_FALSE(queue.drained());
  Transfer transfer;
  ASSERT_TRUE(queue.WaitNext(&transfer));
  EXPECT_EQ(transfer.size, Bytes(0));
  EXPECT_FALSE(queue.Advance(&transfer, 0));
  EXPECT_THAT(ended_[0], testing::ElementsAre(IsOk()));
  EXPECT_TRUE(queue.drained());
  EXPECT_FALSE(queue.WaitNext(&transfer));
}

}  // namespace
}  // namespace castor
