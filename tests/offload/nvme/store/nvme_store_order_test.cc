// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// In which order a store asks its drive for transfers, and what becomes of
// those that are raised or cancelled: on a queue cranked by hand.

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/nvme/store/nvme_store.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/manual_io_queue.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

// Extents of two stripes of 64 KiB, all written once.
constexpr Bytes kStripe = KiB(64);
constexpr Bytes kExtent = KiB(128);

class NvmeStoreOrderTest : public testing::Test {
 protected:
  NvmeStoreOrderTest() : io_(std::make_shared<ManualIo>(MiB(1), 3)) {
    auto store = NvmeStore::Create(
        {.drives = {{dir_.path(), kExtent * 8}},
         .stripe = kStripe,
         .make_queue = [this](size_t) { return MakeManualIoQueue(io_); }});
    EXPECT_THAT(store, IsOk());
    store_ = std::move(store).value();
    FillRandom(content_.span(), 1);
    for (int i = 0; i < 8; ++i) written_.push_back(Write(i));
    io_->RunAll();
    for (const Event& event : written_) EXPECT_THAT(event.Wait(), IsOk());
  }

  Event Write(int extent, NvmeTicket* ticket = nullptr) {
    return store_->Write(kExtent * extent,
                         content_.part(kExtent * extent, kExtent), Event(),
                         "write", IoPriority::kWriteBack, ticket);
  }
  Event Read(int extent, IoPriority priority, NvmeTicket* ticket = nullptr,
             const Event& after = Event()) {
    return store_->Read(kExtent * extent, read_.part(kExtent * extent, kExtent),
                        after, "fetch of chunk " + std::to_string(extent),
                        priority, ticket);
  }
  bool IsThere(int extent) const {
    return SameBytes(read_.part(kExtent * extent, kExtent),
                     content_.part(kExtent * extent, kExtent));
  }
  // Which extent the drive is asked for next, and for which half of it.
  std::string Next() {
    const std::optional<ManualIo::Transfer> transfer = io_->Take();
    if (!transfer) return "none";
    const int64_t piece = transfer->offset / kStripe;
    io_->Finish(*transfer);
    return std::string(transfer->direction == IoDirection::kRead ? "read "
                                                                 : "write ") +
           std::to_string(piece / 2) + (piece % 2 == 0 ? "a" : "b");
  }
  std::vector<std::string> Next(int count) {
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) names.push_back(Next());
    return names;
  }

  TempDir dir_;
  std::shared_ptr<ManualIo> io_;
  AlignedBytes content_{kExtent * 8}, read_{kExtent * 8};
  std::unique_ptr<NvmeStore> store_;
  std::vector<Event> written_;
};

TEST_F(NvmeStoreOrderTest, DemandBeforePrefetchBeforeWriteBack) {
  const Event back = Write(0);
  const Event ahead = Read(1, IoPriority::kPrefetch);
  const Event now = Read(2, IoPriority::kDemand);
  EXPECT_THAT(Next(6), testing::ElementsAre("read 2a", "read 2b", "read 1a",
                                            "write 0a", "read 1b", "write 0b"))
      << "after three others the write-back has its turn";
  EXPECT_THAT(now.Wait(), IsOk());
  EXPECT_THAT(ahead.Wait(), IsOk());
  EXPECT_THAT(back.Wait(), IsOk());
  EXPECT_TRUE(IsThere(1) && IsThere(2));
}

TEST_F(NvmeStoreOrderTest, APrefetchThatIsWantedNowOvertakes) {
  NvmeTicket ticket;
  Read(1, IoPriority::kPrefetch);
  const Event wanted = Read(2, IoPriority::kPrefetch, &ticket);
  EXPECT_EQ(Next(), "read 1a");
  store_->Raise(ticket, IoPriority::kDemand);
  EXPECT_THAT(Next(2), testing::ElementsAre("read 2a", "read 2b"));
  EXPECT_THAT(wanted.Wait(), IsOk());
  EXPECT_EQ(Next(), "read 1b");
  // Over, and empty: nothing happens.
  store_->Raise(ticket, IoPriority::kDemand);
  store_->Raise(NvmeTicket(), IoPriority::kDemand);
  EXPECT_EQ(Next(), "none");
}

TEST_F(NvmeStoreOrderTest, AWriteBackWhoseMemoryIsNeededOvertakes) {
  NvmeTicket ticket;
  Read(1, IoPriority::kPrefetch);
  Write(0, &ticket);
  store_->Raise(ticket, IoPriority::kDemand);
  EXPECT_THAT(Next(4), testing::ElementsAre("write 0a", "write 0b", "read 1a",
                                            "read 1b"));
}

TEST_F(NvmeStoreOrderTest, WhatIsRaisedBeforeItStartsStartsSo) {
  NvmeTicket ticket;
  EventSource gate;
  Read(2, IoPriority::kPrefetch, &ticket, gate.event());
  store_->Raise(ticket, IoPriority::kDemand);
  Read(1, IoPriority::kPrefetch);
  gate.Complete();
  EXPECT_THAT(Next(4),
              testing::ElementsAre("read 2a", "read 2b", "read 1a", "read 1b"));
}

TEST_F(NvmeStoreOrderTest, ACancelledPrefetchNeverGoesOut) {
  NvmeTicket ticket;
  const Event dropped = Read(1, IoPriority::kPrefetch, &ticket);
  const Event kept = Read(2, IoPriority::kPrefetch);
  EXPECT_TRUE(store_->Cancel(ticket));
  ASSERT_TRUE(dropped.done());
  EXPECT_THAT(
      dropped.status(),
      StatusIs(ErrorCode::kAborted,
               Says("fetch of chunk 1", store_->file().string(), "cancelled")));
  EXPECT_FALSE(store_->Cancel(ticket));
  EXPECT_THAT(Next(3), testing::ElementsAre("read 2a", "read 2b", "none"));
  EXPECT_THAT(kept.Wait(), IsOk());
  EXPECT_EQ(store_->stats().cancelled, 1);
  EXPECT_EQ(store_->stats().reads, 1);
  // Its extent is free and whole.
  const Event write = Write(1);
  const Event again = Read(1, IoPriority::kDemand, nullptr, write);
  // The read starts on a thread of the store, once the checksums are made.
  while (!again.done()) io_->RunAll();
  EXPECT_THAT(write.status(), IsOk());
  EXPECT_THAT(again.status(), IsOk());
  EXPECT_TRUE(IsThere(1));
}

TEST_F(NvmeStoreOrderTest, ACancelledPrefetchWaitsForWhatIsWithTheDrive) {
  NvmeTicket ticket;
  const Event dropped = Read(1, IoPriority::kPrefetch, &ticket);
  const auto with_drive = io_->Take();
  ASSERT_TRUE(with_drive);
  EXPECT_TRUE(store_->Cancel(ticket));
  EXPECT_FALSE(dropped.done()) << "its memory is in use";
  EXPECT_EQ(Next(), "none");
  io_->Finish(*with_drive);
  EXPECT_THAT(dropped.Wait(), StatusIs(ErrorCode::kAborted));
}

TEST_F(NvmeStoreOrderTest, APrefetchThatHasGoneOutWholeIsNotCancelled) {
  NvmeTicket ticket;
  const Event event = Read(1, IoPriority::kPrefetch, &ticket);
  const auto a = io_->Take(), b = io_->Take();
  ASSERT_TRUE(a && b);
  EXPECT_FALSE(store_->Cancel(ticket));
  io_->Finish(*b);
  io_->Finish(*a);
  EXPECT_THAT(event.Wait(), IsOk());
  EXPECT_TRUE(IsThere(1));
  EXPECT_FALSE(store_->Cancel(ticket));
  EXPECT_FALSE(store_->Cancel(NvmeTicket()));
}

// The memory may still be somebody else's until the event is done.
TEST_F(NvmeStoreOrderTest, OneCancelledBeforeItStartsEndsAfterItsEvent) {
  NvmeTicket ticket;
  EventSource gate;
  const Event dropped = Read(1, IoPriority::kPrefetch, &ticket, gate.event());
  EXPECT_TRUE(store_->Cancel(ticket));
  EXPECT_TRUE(store_->Cancel(ticket));
  EXPECT_FALSE(dropped.done());
  gate.Complete();
  ASSERT_TRUE(dropped.done());
  EXPECT_THAT(dropped.status(),
              StatusIs(ErrorCode::kAborted, Says("before it started")));
  EXPECT_FALSE(store_->Cancel(ticket));
  EXPECT_EQ(Next(), "none");
  EXPECT_EQ(store_->stats().cancelled, 1);
}

TEST_F(NvmeStoreOrderTest, AWriteIsNeverCancelled) {
  NvmeTicket ticket;
  const Event write = Write(1, &ticket);
  EXPECT_FALSE(store_->Cancel(ticket));
  EXPECT_THAT(Next(2), testing::ElementsAre("write 1a", "write 1b"));
  EXPECT_THAT(write.Wait(), IsOk());
}

TEST_F(NvmeStoreOrderTest, CallbacksOfACancelledReadMayAskTheStore) {
  NvmeTicket ticket;
  const Event dropped = Read(1, IoPriority::kPrefetch, &ticket);
  Event next;
  dropped.OnDone([&](const Status&) {
    EXPECT_FALSE(store_->Cancel(ticket));
    store_->Raise(ticket, IoPriority::kDemand);
    next = Read(2, IoPriority::kDemand);
  });
  EXPECT_TRUE(store_->Cancel(ticket));
  EXPECT_THAT(Next(3), testing::ElementsAre("read 2a", "read 2b", "none"));
  EXPECT_THAT(next.Wait(), IsOk());
}

// One half of a read fails while the other is under way: one end, after both.
TEST_F(NvmeStoreOrderTest, AReadEndsWhenItsLastPieceIsBack) {
  const Event read = Read(1, IoPriority::kDemand);
  const auto a = io_->Take(), b = io_->Take();
  ASSERT_TRUE(a && b);
  io_->Finish(*b, EIO);
  EXPECT_FALSE(read.done());
  io_->Finish(*a);
  EXPECT_THAT(read.Wait(), StatusIs(ErrorCode::kIoError,
                                    Says("fetch of chunk 1", "offset 196608")));
  const Event again = Read(1, IoPriority::kDemand);
  io_->RunAll();
  EXPECT_THAT(again.Wait(), IsOk());
  EXPECT_TRUE(IsThere(1));
}

}  // namespace
}  // namespace castor
