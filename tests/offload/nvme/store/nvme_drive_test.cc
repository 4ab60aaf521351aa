// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/store/nvme_drive.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/nvme/nvme_option.h"
#include "offload/nvme/store/checksum.h"
#include "offload/nvme/store/extent_table.h"
#include "offload/nvme/store/stripe_map.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::ElementsAre;

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

TEST(NvmeDriveTest, WhatTheQueueDoesNotRegisterIsSaidOncePerLog) {
  TempDir dir;
  std::vector<std::string> said;
  Log log([&](LogLevel, std::string_view line) { said.emplace_back(line); });
  AlignedBytes memory(KiB(8));
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_OK_AND_ASSIGN(
        auto drive, NvmeDrive::Open({dir.path(), KiB(4)},
                                    std::make_unique<UnwillingQueue>(), &log));
    drive->RegisterMemory(memory.span());
    EXPECT_EQ(drive->registered(), Bytes(0));
  }
  EXPECT_THAT(said, testing::IsSupersetOf(
                        {Says("no files"),
                         Says("pin their memory each time, which takes "
                              "processor time: no memory")}));
  EXPECT_LE(said.size(), 3u) << "O_DIRECT may be refused here";
}

TEST(NvmeLimitTest, IsTheSumInStripesUnlessADriveHasNone) {
  std::vector<NvmeOption> drives = {{"/a", GiB(1) + KiB(4)}};
  EXPECT_EQ(NvmeLimit(drives), GiB(1) + KiB(4));
  drives.push_back({"/b", MiB(4) - KiB(4)});
  EXPECT_EQ(NvmeLimit(drives), GiB(1) + MiB(3));
  drives.push_back({"/c", Bytes(INT64_MAX)});
  EXPECT_EQ(NvmeLimit(drives), std::nullopt) << "more than can be counted";
  drives.pop_back();
  drives.push_back({"/c", std::nullopt});
  EXPECT_EQ(NvmeLimit(drives), std::nullopt);
}

std::pair<size_t, Bytes> At(const StripeMap& map, Bytes offset) {
  const StripePlace place = map.Place(offset);
  return {place.drive, place.offset};
}

// The picture in the header.
TEST(StripeMapTest, DrivesTakeTurnsAndTheLargerGoOnAlone) {
  const StripeMap map({KiB(12), KiB(16), KiB(4)}, KiB(4));
  EXPECT_EQ(map.size(), KiB(32));
  std::vector<std::pair<size_t, Bytes>> places;
  for (int i = 0; i < 8; ++i) places.push_back(At(map, KiB(4) * i));
  EXPECT_THAT(places, ElementsAre(std::pair(0, KiB(0)), std::pair(1, KiB(0)),
                                  std::pair(2, KiB(0)), std::pair(0, KiB(4)),
                                  std::pair(1, KiB(4)), std::pair(0, KiB(8)),
                                  std::pair(1, KiB(8)), std::pair(1, KiB(12))));
  EXPECT_EQ(At(map, KiB(14)), std::pair(size_t{0}, KiB(6)));
}

// Every byte has a place of its own, and every byte of every drive is one.
TEST(StripeMapTest, IsOneToOneForRandomSizes) {
  std::mt19937_64 random(TestSeed(3));
  for (int round = 0; round < 300; ++round) {
    const size_t drives = random() % 5 + 1;
    std::vector<Bytes> sizes;
    Bytes sum;
    for (size_t i = 0; i < drives; ++i) {
      sizes.push_back(KiB(4) * static_cast<int64_t>(random() % 9 + 1));
      sum += sizes.back();
    }
    const StripeMap map(sizes, KiB(4));
    ASSERT_EQ(map.size(), sum);
    std::set<std::pair<size_t, Bytes>> seen;
    std::vector<Bytes> next(drives);
    for (Bytes offset; offset < sum; offset += KiB(4)) {
      const auto [drive, place] = At(map, offset);
      ASSERT_LT(drive, drives);
      ASSERT_LT(place, sizes[drive]);
      ASSERT_EQ(place, next[drive]) << "in order on each drive";
      next[drive] += KiB(4);
      ASSERT_TRUE(seen.emplace(drive, place).second);
      ASSERT_EQ(At(map, offset + Bytes(4095)),
                std::pair(drive, place + Bytes(4095)));
    }
  }
}

// What makes one extent as fast as all drives together.
TEST(StripeMapTest, AnExtentLiesOnAllDrivesInEqualParts) {
  for (const int drives : {2, 3, 4, 8}) {
    const StripeMap map(
        std::vector<Bytes>(static_cast<size_t>(drives), MiB(64)), MiB(1));
    for (const Bytes start : {KiB(0), KiB(4), MiB(5) + KiB(12)}) {
      for (const Bytes size : {MiB(8), MiB(16), MiB(24)}) {
        std::vector<int64_t> bytes(static_cast<size_t>(drives));
        for (Bytes offset = start; offset < start + size; offset += KiB(4)) {
          bytes[map.Place(offset).drive] += 4096;
        }
        const auto [least, most] =
            std::minmax_element(bytes.begin(), bytes.end());
        EXPECT_LE(*most - *least, 1 << 20) << drives << " drives";
      }
    }
  }
}

Result<std::vector<Bytes>> Share(
    Bytes need, const std::vector<std::optional<Bytes>>& limits) {
  return ShareOverDrives(need, limits, MiB(1));
}

TEST(ShareOverDrivesTest, OneDriveGetsWhatIsNeeded) {
  EXPECT_THAT(*Share(KiB(20), {std::nullopt}), ElementsAre(KiB(20)));
  EXPECT_THAT(*Share(KiB(20), {KiB(20)}), ElementsAre(KiB(20)));
  EXPECT_THAT(Share(KiB(20), {KiB(16)}),
              StatusIs(ErrorCode::kInfeasible,
                       Says("needs 20480 B", "given 16384 B", "raise")));
}

TEST(ShareOverDrivesTest, SeveralGetEqualPartsInWholeStripes) {
  EXPECT_THAT(*Share(MiB(12), {std::nullopt, std::nullopt, std::nullopt}),
              ElementsAre(MiB(4), MiB(4), MiB(4)));
  EXPECT_THAT(*Share(MiB(12), {MiB(2), std::nullopt, MiB(100)}),
              ElementsAre(MiB(2), MiB(5), MiB(5)));
  EXPECT_THAT(*Share(MiB(3) + Bytes(4096), {std::nullopt, std::nullopt}),
              ElementsAre(MiB(2), MiB(2)));
  EXPECT_THAT(*Share(KiB(4), {std::nullopt, std::nullopt}),
              ElementsAre(Bytes(0), MiB(1)));
  EXPECT_THAT(Share(MiB(12), {MiB(4) + KiB(1020), MiB(7)}),
              StatusIs(ErrorCode::kInfeasible, Says("2 drives", "11534336 B")));
}

TEST(ShareOverDrivesTest, KeepsEveryLimitAndIsAsEvenAsTheyLetIt) {
  std::mt19937_64 random(TestSeed(8));
  int shared = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::optional<Bytes>> limits(random() % 5 + 2);
    int64_t units = 0;
    bool unlimited = false;
    for (auto& limit : limits) {
      if (random() % 6 == 0) {
        unlimited = true;
        continue;
      }
      limit = KiB(static_cast<int64_t>(random() % 12000));
      units += *limit / MiB(1);
    }
    const Bytes need = KiB(static_cast<int64_t>(random() % 40000 + 1));
    const auto sizes = Share(need, limits);
    if (!unlimited && need > MiB(1) * units) {
      EXPECT_THAT(sizes, StatusIs(ErrorCode::kInfeasible));
      continue;
    }
    ASSERT_THAT(sizes, IsOk());
    ++shared;
    Bytes sum, most;
    for (const Bytes size : *sizes) {
      sum += size;
      most = std::max(most, size);
      EXPECT_EQ(size % MiB(1), Bytes(0));
    }
    EXPECT_EQ(sum, RoundUp(need, MiB(1)));
    for (size_t i = 0; i < limits.size(); ++i) {
      if (limits[i]) {
        EXPECT_LE((*sizes)[i], *limits[i]);
      }
      // Less than another by more than a stripe only where it is full.
      if ((*sizes)[i] + MiB(1) < most) {
        ASSERT_TRUE(limits[i]);
        EXPECT_GT((*sizes)[i] + MiB(1), *limits[i]);
      }
    }
  }
  EXPECT_GT(shared, 500);
}

class ExtentTableTest : public testing::Test {
 protected:
  ExtentTableTest() : file_(KiB(64)) {}

  // Writes new random bytes to the range of the "file".
  void Write(Bytes offset, Bytes size) {
    FillRandom(file_.part(offset, size), ++seed_);
    ASSERT_THAT(table_.BeginWrite(offset, size), IsOk());
    EndWrite(offset, size);
  }
  void EndWrite(Bytes offset, Bytes size) {
    for (const ExtentPiece& piece : table_.Pieces(offset, size)) {
      table_.SetChecksum(piece.offset,
                         Checksum(file_.part(piece.offset, piece.size)));
    }
    table_.EndWrite(offset, true);
  }
  Status Read(Bytes offset, Bytes size) {
    CASTOR_RETURN_IF_ERROR(table_.BeginRead(offset, size));
    Status status;
    for (const ExtentPiece& piece : table_.Pieces(offset, size)) {
      const Status verified =
          table_.Verify(piece.offset, file_.part(piece.offset, piece.size));
      if (status.ok()) status = verified;
    }
    table_.EndRead(offset, size);
    return status;
  }

  AlignedBytes file_;
  ExtentTable table_{KiB(16)};
  uint64_t seed_ = 0;
};

TEST_F(ExtentTableTest, SeesASingleFlippedBit) {
  Write(KiB(4), KiB(8));
  for (const int64_t place : {4096, 8191, 12287}) {
    file_.span()[static_cast<size_t>(place)] ^= std::byte{1};
    EXPECT_THAT(Read(KiB(4), KiB(8)),
                StatusIs(ErrorCode::kDataLoss, Says("[4096, 12288)")));
    file_.span()[static_cast<size_t>(place)] ^= std::byte{1};
  }
  EXPECT_THAT(Read(KiB(4), KiB(8)), IsOk());
}

TEST_F(ExtentTableTest, ReadsSeveralWholeExtentsAndNamesTheBrokenOne) {
  Write(KiB(0), KiB(4));
  Write(KiB(4), KiB(8));
  Write(KiB(12), KiB(4));
  EXPECT_THAT(Read(KiB(0), KiB(16)), IsOk());
  EXPECT_THAT(Read(KiB(4), KiB(12)), IsOk());
  file_.span()[5000] ^= std::byte{4};
  EXPECT_THAT(Read(KiB(0), KiB(16)),
              StatusIs(ErrorCode::kDataLoss, Says("[4096, 12288)")));
  EXPECT_THAT(Read(KiB(12), KiB(4)), IsOk());
}

TEST_F(ExtentTableTest, CutsExtentsAtMultiplesOfTheUnit) {
  auto pieces = [&](Bytes offset, Bytes size) {
    std::vector<std::pair<Bytes, Bytes>> all;
    for (const ExtentPiece& piece : table_.Pieces(offset, size)) {
      all.emplace_back(piece.offset, piece.size);
    }
    return all;
  };
  using testing::ElementsAre;
  using testing::Pair;
  Write(KiB(4), KiB(44));
  EXPECT_THAT(pieces(KiB(4), KiB(44)),
              ElementsAre(Pair(KiB(4), KiB(12)), Pair(KiB(16), KiB(16)),
                          Pair(KiB(32), KiB(16))));
  // And at the borders of extents.
  Write(KiB(48), KiB(4));
  Write(KiB(52), KiB(12));
  EXPECT_THAT(pieces(KiB(48), KiB(16)),
              ElementsAre(Pair(KiB(48), KiB(4)), Pair(KiB(52), KiB(12))));
  EXPECT_THAT(Read(KiB(4), KiB(60)), IsOk());
  file_.span()[40000] ^= std::byte{1};
  EXPECT_THAT(Read(KiB(4), KiB(60)),
              StatusIs(ErrorCode::kDataLoss, Says("[32768, 49152)")));
}

TEST_F(ExtentTableTest, RefusesPartOfAnExtent) {
  Write(KiB(8), KiB(16));
  for (const auto& [offset, size] :
       {std::pair(KiB(8), KiB(4)), std::pair(KiB(12), KiB(4)),
        std::pair(KiB(12), KiB(12))}) {
    EXPECT_THAT(Read(offset, size),
                StatusIs(ErrorCode::kInvalidArgument, Says("[8192, 24576)")));
  }
}

TEST_F(ExtentTableTest, RefusesWhatWasNeverWritten) {
  Write(KiB(8), KiB(4));
  EXPECT_THAT(Read(KiB(0), KiB(4)), StatusIs(ErrorCode::kDataLoss));
  EXPECT_THAT(Read(KiB(4), KiB(8)), StatusIs(ErrorCode::kDataLoss));
  EXPECT_THAT(Read(KiB(8), KiB(8)),
              StatusIs(ErrorCode::kDataLoss, Says("offset 12288")));
}

TEST_F(ExtentTableTest, AFailedWriteLeavesNothingToRead) {
  Write(KiB(0), KiB(4));
  ASSERT_THAT(table_.BeginWrite(KiB(0), KiB(4)), IsOk());
  table_.EndWrite(KiB(0), false);
  EXPECT_THAT(Read(KiB(0), KiB(4)),
              StatusIs(ErrorCode::kDataLoss, Says("write")));
  Write(KiB(0), KiB(4));
  EXPECT_THAT(Read(KiB(0), KiB(4)), IsOk());
}

TEST_F(ExtentTableTest, RefusesTransfersThatWereNotOrdered) {
  Write(KiB(0), KiB(8));
  ASSERT_THAT(table_.BeginWrite(KiB(0), KiB(8)), IsOk());
  EXPECT_THAT(table_.BeginRead(KiB(0), KiB(8)),
              StatusIs(ErrorCode::kFailedPrecondition));
  EXPECT_THAT(table_.BeginWrite(KiB(4), KiB(8)),
              StatusIs(ErrorCode::kFailedPrecondition));
  EndWrite(KiB(0), KiB(8));
  ASSERT_THAT(table_.BeginRead(KiB(0), KiB(8)), IsOk());
  ASSERT_THAT(table_.BeginRead(KiB(0), KiB(8)), IsOk()) << "readers may share";
  table_.EndRead(KiB(0), KiB(8));
  EXPECT_THAT(table_.BeginWrite(KiB(0), KiB(8)),
              StatusIs(ErrorCode::kFailedPrecondition));
  table_.EndRead(KiB(0), KiB(8));
  Write(KiB(0), KiB(8));
  EXPECT_THAT(Read(KiB(0), KiB(8)), IsOk());
}

// Against a model that knows for each 4 KiB block which write it came from.
TEST_F(ExtentTableTest, AgreesWithAModelOnRandomWritesAndReads) {
  std::mt19937_64 random(TestSeed(17));
  struct Extent {
    int64_t start, end;
  };
  std::vector<std::optional<Extent>> blocks(16);
  int read_whole = 0;
  for (int i = 0; i < 20000; ++i) {
    const int64_t start = static_cast<int64_t>(random() % 16);
    const int64_t end =
        start + 1 +
        static_cast<int64_t>(
            random() %
            std::min<uint64_t>(4, 16 - static_cast<uint64_t>(start)));
    if (random() % 4 == 0) {
      Write(KiB(4) * start, KiB(4) * (end - start));
      for (auto& block : blocks) {
        if (block && block->start < end && start < block->end) block.reset();
      }
      for (int64_t b = start; b < end; ++b) {
        blocks[static_cast<size_t>(b)] = Extent{start, end};
      }
      continue;
    }
    ErrorCode expected = ErrorCode::kOk;
    for (int64_t b = start; b < end && expected == ErrorCode::kOk; ++b) {
      const auto& block = blocks[static_cast<size_t>(b)];
      if (!block) {
        expected = ErrorCode::kDataLoss;
      } else if (block->start < start || block->end > end) {
        expected = ErrorCode::kInvalidArgument;
      }
    }
    ASSERT_THAT(Read(KiB(4) * start, KiB(4) * (end - start)),
                StatusIs(expected))
        << "step " << i << ": blocks " << start << " to " << end;
    if (expected == ErrorCode::kOk) ++read_whole;
  }
  EXPECT_GT(read_whole, 1000);
}

}  // namespace
}  // namespace castor
