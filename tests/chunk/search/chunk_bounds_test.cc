// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/chunk_bounds.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

using testing::ElementsAreArray;

TEST(ChunkBoundsTest, GoFromWhatTheBudgetCallsForToWhatTheModelCallsFor) {
  const auto most = [](Bytes model, std::optional<Bytes> device) {
    std::vector<Bytes> sizes;
    for (const ChunkBounds& bounds :
         ChunkBoundsFor(model, device, 1, std::nullopt, std::nullopt)) {
      EXPECT_EQ(bounds.least, std::min(MiB(32), bounds.most / 2));
      sizes.push_back(bounds.most * 4 / 5);
    }
    return sizes;
  };
  const std::vector<Bytes> large = most(GiB(14), GiB(80));
  EXPECT_EQ(large.front(), MiB(512));
  EXPECT_EQ(large.back(), MiB(1));
  EXPECT_EQ(large.size(), 10u);
  EXPECT_EQ(most(GiB(14), std::nullopt), large);
  EXPECT_EQ(most(GiB(14), MiB(100)).front(), MiB(8));
  // Large chunks are sixteen or more.
  EXPECT_EQ(ChunkBoundsFor(GiB(2), GiB(80), 1, std::nullopt, std::nullopt)
                .front()
                .most,
            MiB(128));
  EXPECT_EQ(most(GiB(2), GiB(80))[1], MiB(64));
  EXPECT_EQ(most(GiB(2), MiB(512))[0], MiB(64));
  EXPECT_EQ(most(MiB(320), GiB(80))[0], MiB(16));
  EXPECT_EQ(most(MiB(320), GiB(80))[1], MiB(8));
  EXPECT_EQ(most(MiB(150), GiB(80))[0], MiB(8));
  // No chunk is far larger than the model, or needs to be smaller than a 64th.
  EXPECT_EQ(most(MiB(3), GiB(80)).front(), MiB(4));
  EXPECT_EQ(most(MiB(3), GiB(80)).back(), KiB(32));
  // A budget that holds nothing tells no size.
  EXPECT_EQ(most(MiB(3), Bytes(0)), std::vector<Bytes>{KiB(32)});
  EXPECT_EQ(most(Bytes(0), Bytes(0)), std::vector<Bytes>{KiB(4)});
}

// What fits a budget fits every larger one.
TEST(ChunkBoundsTest, TryUnderALargerBudgetAllThatASmallerOneTries) {
  for (const Bytes model : {Bytes(0), KiB(9), MiB(3), MiB(200), GiB(2),
                            MiB(2473), GiB(9), GiB(700)}) {
    std::vector<Bytes> before;
    for (Bytes device = KiB(1); device < GiB(700); device = device * 3 / 2) {
      std::vector<Bytes> sizes;
      for (const ChunkBounds& bounds :
           ChunkBoundsFor(model, device, 1, std::nullopt, std::nullopt)) {
        ASSERT_TRUE(sizes.empty() || bounds.most < sizes.back());
        sizes.push_back(bounds.most);
      }
      ASSERT_GE(sizes.size(), std::max<size_t>(before.size(), 1));
      EXPECT_THAT(std::vector(sizes.end() - std::ssize(before), sizes.end()),
                  ElementsAreArray(before));
      EXPECT_LE(sizes[0], std::max(MiB(10), model / 16));
      before = sizes;
    }
    EXPECT_EQ(before.front(),
              ChunkBoundsFor(model, std::nullopt, 1, std::nullopt, std::nullopt)
                  .front()
                  .most);
  }
}

TEST(ChunkBoundsTest, KeepWhatIsSaid) {
  const auto bounds = [](std::optional<Bytes> least,
                         std::optional<Bytes> most) {
    return ChunkBoundsFor(MiB(160), MiB(64), 1, least, most);
  };
  ASSERT_EQ(bounds(MiB(2), MiB(3)).size(), 1u);
  EXPECT_EQ(bounds(MiB(2), MiB(3))[0].least, MiB(2));
  EXPECT_EQ(bounds(MiB(2), MiB(3))[0].most, MiB(3));
  ASSERT_EQ(bounds(std::nullopt, MiB(4)).size(), 1u);
  EXPECT_EQ(bounds(std::nullopt, MiB(4))[0].least, MiB(2));
  // From 8 MiB down to what was said.
  ASSERT_EQ(bounds(MiB(2), std::nullopt).size(), 3u);
  EXPECT_EQ(bounds(MiB(2), std::nullopt).back().most, KiB(2560));
  ASSERT_EQ(bounds(MiB(20), std::nullopt).size(), 1u);
  EXPECT_EQ(bounds(MiB(20), std::nullopt)[0].most, MiB(20));
}

TEST(ChunkBoundsTest, EveryChunkCanBeSharedByAllRanks) {
  for (const int world : {1, 3, 64, 2048}) {
    for (const ChunkBounds& bounds :
         ChunkBoundsFor(MiB(3), KiB(64), world, std::nullopt, std::nullopt)) {
      EXPECT_GE(bounds.most,
                BytesOf(Elements(int64_t{128} * world), DType::kF32));
    }
  }
}

}  // namespace
}  // namespace castor
