// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/extent_table.h"

#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

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
