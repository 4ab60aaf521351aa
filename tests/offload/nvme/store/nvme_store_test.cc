// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/store/nvme_store.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/nvme/nvme_option.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/nvme/queue/thread_io_queue.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

// How many drives, and on which queue.
struct Setup {
  size_t drives = 1;
  bool threads = false;
};

class NvmeStoreTest : public testing::TestWithParam<Setup> {
 protected:
  NvmeStoreTest() {
    for (size_t i = 0; i < GetParam().drives; ++i) {
      std::filesystem::create_directory(Directory(i));
    }
  }

  std::filesystem::path Directory(size_t drive) const {
    return dir_.path() / ("drive" + std::to_string(drive));
  }
  bool NothingIsLeft() const {
    for (size_t i = 0; i < GetParam().drives; ++i) {
      if (!std::filesystem::is_empty(Directory(i))) return false;
    }
    return true;
  }

  // A store of `size` in all, a little more on several drives.
  std::unique_ptr<NvmeStore> Make(Bytes size) {
    NvmeStoreOptions options{.drives = {},
                             .stripe = KiB(64),
                             .queue = {.depth = 8, .piece = KiB(32)},
                             .log = &log_};
    std::vector<NvmeOption> drives;
    for (size_t i = 0; i < GetParam().drives; ++i) {
      drives.push_back({Directory(i), std::nullopt});
    }
    // Unequal ones.
    if (drives.size() > 1) drives[0].size = KiB(192);
    options.drives = *NvmeStore::DrivesFor(size, drives, options.stripe);
    if (GetParam().threads) {
      options.make_queue = [queue = options.queue](size_t) {
        return MakeThreadIoQueue(queue);
      };
    }
    auto store = NvmeStore::Create(std::move(options));
    EXPECT_THAT(store, IsOk());
    return std::move(store).value();
  }

  TempDir dir_;
  std::vector<std::string> said_;
  Log log_{
      [this](LogLevel, std::string_view line) { said_.emplace_back(line); }};
};

INSTANTIATE_TEST_SUITE_P(Queues, NvmeStoreTest,
                         testing::Values(Setup{1, false}, Setup{1, true},
                                         Setup{3, false}, Setup{3, true}),
                         [](const auto& info) {
                           return std::to_string(info.param.drives) +
                                  (info.param.threads ? "Threads" : "Best");
                         });

TEST_P(NvmeStoreTest, ReadsBackWhatWasWritten) {
  auto store = Make(MiB(8));
  AlignedBytes written(MiB(3)), read(MiB(3));
  FillRandom(written.span(), 1);
  const Event wrote =
      store->Write(MiB(2), written.span(), Event(), "write-back of chunk 7");
  const Event fetched =
      store->Read(MiB(2), read.span(), wrote, "fetch of chunk 7");
  EXPECT_THAT(fetched.Wait(), IsOk());
  EXPECT_THAT(wrote.Wait(), IsOk());
  EXPECT_TRUE(SameBytes(read.span(), written.span()));
  const NvmeStoreStats stats = store->stats();
  EXPECT_EQ(stats.bytes_written, MiB(3));
  EXPECT_EQ(stats.bytes_read, MiB(3));
  EXPECT_EQ(stats.reads, 1);
  EXPECT_EQ(stats.writes, 1);
  if (GetParam().threads) {
    EXPECT_EQ(stats.queue, "threads");
  }
}

TEST_P(NvmeStoreTest, HasAFileOfItsSizeThatGoesWithIt) {
  {
    auto store = Make(MiB(2));
    uintmax_t size = 0;
    for (size_t i = 0; i < GetParam().drives; ++i) {
      size += std::filesystem::file_size(store->file(i));
      EXPECT_EQ(store->file(i).parent_path().parent_path(),
                std::filesystem::canonical(Directory(i)));
    }
    EXPECT_EQ(size, 2u << 20);
    EXPECT_EQ(store->size(), MiB(2));
  }
  EXPECT_TRUE(NothingIsLeft());
}

TEST_P(NvmeStoreTest, StartsOnlyAfterTheEventItWasGiven) {
  auto store = Make(MiB(1));
  AlignedBytes bytes(KiB(64));
  EventSource gate;
  const Event wrote = store->Write(Bytes(0), bytes.span(), gate.event(), "w");
  // The bytes are taken when the transfer starts, not when it is queued.
  FillRandom(bytes.span(), 5);
  EXPECT_FALSE(wrote.done());
  EXPECT_EQ(store->stats().writes, 0);
  gate.Complete();
  EXPECT_THAT(wrote.Wait(), IsOk());
  AlignedBytes read(KiB(64));
  EXPECT_THAT(store->Read(Bytes(0), read.span(), Event(), "r").Wait(), IsOk());
  EXPECT_TRUE(SameBytes(read.span(), bytes.span()));
}

TEST_P(NvmeStoreTest, AFailureOfTheEventFailsTheTransfer) {
  auto store = Make(MiB(1));
  AlignedBytes bytes(KiB(64));
  EXPECT_THAT(store
                  ->Write(Bytes(0), bytes.span(),
                          Event::Failed(Aborted("rank 3 is gone")),
                          "write-back of chunk 2")
                  .Wait(),
              StatusIs(ErrorCode::kAborted, Says("chunk 2", "rank 3 is gone")));
  EXPECT_THAT(store->Read(Bytes(0), bytes.span(), Event(), "r").Wait(),
              StatusIs(ErrorCode::kDataLoss));
}

TEST_P(NvmeStoreTest, RefusesRangesAndMemoryThatDoNotFit) {
  auto store = Make(MiB(1));
  AlignedBytes bytes(MiB(2));
  auto write = [&](Bytes offset, std::span<std::byte> data) {
    return store->Write(offset, data, Event(), "spill").Wait();
  };
  const auto fine = bytes.part(Bytes(0), KiB(8));
  for (const Status& status :
       {write(Bytes(512), fine), write(Bytes(0), fine.first(5000)),
        write(Bytes(0), bytes.part(Bytes(512), KiB(4))),
        write(MiB(1), bytes.part(Bytes(0), KiB(4))),
        write(KiB(1020), bytes.part(Bytes(0), KiB(8))),
        write(Bytes(-4096), fine), write(Bytes(0), bytes.span()),
        write(Bytes(0), {})}) {
    EXPECT_THAT(status, StatusIs(ErrorCode::kInvalidArgument, Says("spill")));
  }
  EXPECT_THAT(
      store->Read(KiB(1020), bytes.part(Bytes(0), KiB(8)), Event(), "f").Wait(),
      StatusIs(ErrorCode::kInvalidArgument));
}

TEST_P(NvmeStoreTest, ReadsWholeExtentsOnly) {
  auto store = Make(MiB(1));
  AlignedBytes bytes(KiB(64)), read(KiB(64));
  FillRandom(bytes.span(), 9);
  const Event first =
      store->Write(KiB(0), bytes.part(KiB(0), KiB(32)), Event(), "w1");
  const Event second =
      store->Write(KiB(32), bytes.part(KiB(32), KiB(32)), Event(), "w2");
  ASSERT_THAT(AllOf(std::vector<Event>{first, second}).Wait(), IsOk());
  EXPECT_THAT(store->Read(KiB(0), read.span(), Event(), "both").Wait(), IsOk());
  EXPECT_TRUE(SameBytes(read.span(), bytes.span()));
  EXPECT_THAT(
      store->Read(KiB(4), read.part(KiB(0), KiB(8)), Event(), "part").Wait(),
      StatusIs(ErrorCode::kInvalidArgument));
  EXPECT_THAT(
      store->Read(KiB(64), read.part(KiB(0), KiB(4)), Event(), "none").Wait(),
      StatusIs(ErrorCode::kDataLoss));
}

TEST_P(NvmeStoreTest, SpreadsAnExtentOverItsDrives) {
  auto store = Make(MiB(8));
  AlignedBytes bytes(KiB(384));
  ASSERT_THAT(store->Write(KiB(0), bytes.span(), Event(), "w").Wait(), IsOk());
  ASSERT_THAT(store->Read(KiB(0), bytes.span(), Event(), "r").Wait(), IsOk());
  for (const NvmeDriveStats& drive : store->stats().drives) {
    const int64_t drives = static_cast<int64_t>(GetParam().drives);
    EXPECT_EQ(drive.bytes_written, KiB(384) / drives);
    EXPECT_EQ(drive.bytes_read, KiB(384) / drives);
  }
}

TEST_P(NvmeStoreTest, CountsWhatAStepWrites) {
  auto store = Make(MiB(2));
  AlignedBytes bytes(KiB(96));
  auto write = [&](int times) {
    for (int i = 0; i < times; ++i) {
      ASSERT_THAT(store->Write(KiB(0), bytes.span(), Event(), "w").Wait(),
                  IsOk());
    }
  };
  write(5);
  EXPECT_EQ(store->stats().step, -1);
  EXPECT_EQ(store->stats().written_this_step, Bytes(0));
  store->BeginStep(1);
  write(3);
  store->BeginStep(2);
  write(1);
  NvmeStoreStats stats = store->stats();
  EXPECT_EQ(stats.step, 2);
  EXPECT_EQ(stats.written_this_step, KiB(96));
  EXPECT_EQ(stats.most_written_in_a_step, KiB(288));
  EXPECT_EQ(stats.bytes_written, KiB(96) * 9);
  store->BeginStep(3);
  stats = store->stats();
  EXPECT_EQ(stats.written_this_step, Bytes(0));
  EXPECT_EQ(stats.most_written_in_a_step, KiB(288));
}

TEST_P(NvmeStoreTest, WorksInRegisteredMemoryAndInOther) {
  auto store = Make(MiB(4));
  AlignedBytes slab(MiB(2)), other(MiB(2));
  store->RegisterMemory(slab.span());
  for (const NvmeDriveStats& drive : store->stats().drives) {
    EXPECT_EQ(drive.registered,
              store->stats().queue == "io_uring" ? MiB(2) : Bytes(0));
  }
  FillRandom(slab.span(), 6);
  const Event wrote = store->Write(KiB(0), slab.span(), Event(), "w");
  ASSERT_THAT(store->Read(KiB(0), other.span(), wrote, "r").Wait(), IsOk());
  EXPECT_TRUE(SameBytes(slab.span(), other.span()));
  FillRandom(other.span(), 7);
  const Event back = store->Write(KiB(0), other.span(), Event(), "w");
  ASSERT_THAT(store->Read(KiB(0), slab.span(), back, "r").Wait(), IsOk());
  EXPECT_TRUE(SameBytes(slab.span(), other.span()));
}

TEST_P(NvmeStoreTest, ManyTransfersInFlightKeepApart) {
  const uint64_t seed = TestSeed(23);
  std::mt19937_64 random(seed);
  constexpr int kSlots = 24;
  constexpr Bytes kSlot = KiB(256);
  auto store = Make(kSlot * kSlots);
  // Every slot has memory, an extent, and an event that orders transfers.
  std::vector<AlignedBytes> model, read;
  std::vector<Event> last(kSlots);
  std::vector<Bytes> size(kSlots);
  for (int i = 0; i < kSlots; ++i) {
    model.emplace_back(kSlot);
    read.emplace_back(kSlot);
  }
  const int rounds = std::max(100, TestRounds(400));
  for (int step = 0; step < rounds; ++step) {
    const size_t slot = random() % kSlots;
    const Bytes offset = kSlot * static_cast<int64_t>(slot);
    if (size[slot] == Bytes(0) || random() % 2 == 0) {
      ASSERT_THAT(last[slot].Wait(), IsOk());
      size[slot] = KiB(4) * static_cast<int64_t>(random() % 64 + 1);
      const auto bytes = model[slot].part(Bytes(0), size[slot]);
      FillRandom(bytes, random());
      last[slot] = store->Write(offset, bytes, last[slot], "w");
    } else {
      last[slot] = store->Read(offset, read[slot].part(Bytes(0), size[slot]),
                               last[slot], "r");
    }
    if (step % 50 == 49) {
      ASSERT_THAT(AllOf(last).Wait(), IsOk());
      for (size_t s = 0; s < kSlots; ++s) {
        if (size[s] == Bytes(0)) continue;
        const auto bytes = read[s].part(Bytes(0), size[s]);
        ASSERT_THAT(
            store
                ->Read(kSlot * static_cast<int64_t>(s), bytes, Event(), "check")
                .Wait(),
            IsOk());
        EXPECT_TRUE(SameBytes(bytes, model[s].part(Bytes(0), size[s])));
      }
    }
  }
}

TEST_P(NvmeStoreTest, CallbacksMayQueueTheNextTransfer) {
  auto store = Make(MiB(1));
  AlignedBytes bytes(KiB(64)), read(KiB(64));
  FillRandom(bytes.span(), 2);
  EventSource finished;
  const Event wrote = store->Write(Bytes(0), bytes.span(), Event(), "w");
  wrote.OnDone([&](const Status& status) {
    ASSERT_THAT(status, IsOk());
    store->Read(Bytes(0), read.span(), Event(), "r")
        .OnDone([&](const Status& s) { finished.Complete(s); });
  });
  EXPECT_THAT(finished.event().Wait(), IsOk());
  EXPECT_TRUE(SameBytes(read.span(), bytes.span()));
}

TEST_P(NvmeStoreTest, CloseEndsWhatHasStartedAndRefusesTheRest) {
  auto store = Make(MiB(16));
  AlignedBytes bytes(MiB(16));
  EventSource gate;
  std::vector<Event> started;
  for (int i = 0; i < 15; ++i) {
    started.push_back(
        store->Write(MiB(1) * i, bytes.part(MiB(1) * i, MiB(1)), Event(), "w"));
  }
  const Event waiting = store->Write(MiB(15), bytes.part(MiB(15), MiB(1)),
                                     gate.event(), "late write");
  EXPECT_THAT(store->Close(), IsOk());
  for (const Event& event : started) {
    ASSERT_TRUE(event.done());
    EXPECT_THAT(event.status(), IsOk());
  }
  EXPECT_TRUE(NothingIsLeft());
  const Event later =
      store->Read(Bytes(0), bytes.part(Bytes(0), MiB(1)), Event(), "after");
  EXPECT_THAT(later.Wait(),
              StatusIs(ErrorCode::kFailedPrecondition, Says("after")));
  EXPECT_THAT(store->Close(), IsOk());
  store.reset();
  // Even when the store itself is gone.
  gate.Complete();
  EXPECT_THAT(waiting.Wait(),
              StatusIs(ErrorCode::kFailedPrecondition, Says("late write")));
}

TEST_P(NvmeStoreTest, TwoStoresShareADirectory) {
  auto a = Make(MiB(1)), b = Make(MiB(1));
  EXPECT_NE(a->file(), b->file());
  AlignedBytes of_a(MiB(1)), of_b(MiB(1)), read(MiB(1));
  FillRandom(of_a.span(), 1);
  FillRandom(of_b.span(), 2);
  ASSERT_THAT(a->Write(Bytes(0), of_a.span(), Event(), "a").Wait(), IsOk());
  ASSERT_THAT(b->Write(Bytes(0), of_b.span(), Event(), "b").Wait(), IsOk());
  b.reset();
  ASSERT_THAT(a->Read(Bytes(0), read.span(), Event(), "a").Wait(), IsOk());
  EXPECT_TRUE(SameBytes(read.span(), of_a.span()));
}

TEST(NvmeStoreCreateTest, RefusesOptionsThatHaveNoMeaning) {
  TempDir dir;
  auto create = [](std::vector<NvmeDriveOptions> drives,
                   Bytes stripe = MiB(1)) {
    return NvmeStore::Create({.drives = std::move(drives), .stripe = stripe})
        .status();
  };
  for (const Bytes size : {Bytes(0), Bytes(-4096), Bytes(5000)}) {
    EXPECT_THAT(create({{dir.path(), size}}),
                StatusIs(ErrorCode::kInvalidArgument, Says("4096 B")));
  }
  EXPECT_THAT(create({}), StatusIs(ErrorCode::kInvalidArgument,
                                   Says("give it a directory")));
  EXPECT_THAT(create({{dir.path(), MiB(1)}}, Bytes(5000)),
              StatusIs(ErrorCode::kInvalidArgument, Says("5000 B")));
  EXPECT_THAT(
      create({{dir.path(), MiB(1)}, {dir.path() / "b", KiB(8)}}),
      StatusIs(ErrorCode::kInvalidArgument, Says("several drives", "8192 B")));
  EXPECT_THAT(create({{dir.path(), MiB(1)}, {dir.path() / ".", MiB(1)}}),
              StatusIs(ErrorCode::kInvalidArgument, Says("twice", "sum")));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(NvmeStoreCreateTest, LeavesNothingBehindOnAFullDisk) {
  TempDir dir;
  // More than any disk has: 8 EiB less a block.
  EXPECT_THAT(
      NvmeStore::Create(
          {.drives = {{dir.path(), RoundDown(Bytes(INT64_MAX), KiB(4))}}}),
      StatusIs(ErrorCode::kUnavailable, Says("9223372036854771712 B")));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(NvmeStoreCreateTest, ADriveThatCannotBeUsedLeavesNothingOnTheOthers) {
  TempDir dir;
  EXPECT_THAT(NvmeStore::Create({.drives = {{dir.path(), MiB(1)},
                                            {dir.path() / "missing", MiB(1)}}}),
              StatusIs(ErrorCode::kUnavailable, Says("missing")));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(NvmeStoreDrivesForTest, LeavesOutDrivesThatAreNotNeeded) {
  const std::vector<NvmeOption> given = {{"/a", MiB(2)}, {"/b", {}}};
  auto drives = NvmeStore::DrivesFor(MiB(8), given);
  ASSERT_THAT(drives, IsOk());
  ASSERT_EQ(drives->size(), 2u);
  EXPECT_EQ((*drives)[0].size, MiB(2));
  EXPECT_EQ((*drives)[1].size, MiB(6));
  drives = NvmeStore::DrivesFor(KiB(20), given);
  ASSERT_THAT(drives, IsOk());
  ASSERT_EQ(drives->size(), 1u);
  EXPECT_EQ((*drives)[0].directory, "/b");
  EXPECT_THAT(NvmeStore::DrivesFor(MiB(1), {}),
              StatusIs(ErrorCode::kInvalidArgument, Says("1048576 B")));
}

}  // namespace
}  // namespace castor
