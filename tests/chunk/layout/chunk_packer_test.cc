// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout/chunk_packer.h"

#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/chunk/naive_packing.h"
#include "tests/chunk/search_input.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<ParamSpec> Params(const std::vector<int64_t>& sizes) {
  return ParamsOf(SizesOf(sizes), DType::kBF16);
}

ChunkLayout Pack(const std::vector<int64_t>& sizes, int64_t chunk_size,
                 const PackOptions& options = {}) {
  const Elements sizes_of_groups[] = {Elements(chunk_size)};
  return PackChunks(Params(sizes), sizes_of_groups, options).value();
}

TEST(ChunkPackerTest, AnEmptyParameterOpensNoChunk) {
  EXPECT_TRUE(Pack({0, 0}, 256).chunks().empty());
  const ChunkLayout layout = Pack({0, 5, 0, 7}, 256);
  EXPECT_EQ(layout.chunks().size(), 1u);
  EXPECT_FALSE(layout.place(ParamId(2)).chunk.valid());
  EXPECT_EQ(layout.place(ParamId(3)).offset, Elements(64));
}

TEST(ChunkPackerTest, NoBorderOfShardsCutsWhatStaysWhole) {
  std::vector<ParamSpec> params = Params({100, 200, 300, 100, 100});
  for (ParamSpec& param : params) param.whole = true;
  params[2].whole = false;
  const Elements size[] = {Elements(512)};
  const auto offsets = [&](int shards) {
    const ChunkLayout layout =
        PackChunks(params, size, {.world = 2, .shards = shards}).value();
    std::vector<int64_t> found;
    for (const ParamPlace& place : layout.places()) {
      found.push_back(place.chunk.value() * 1000 + place.offset.count());
    }
    return found;
  };
  // The second begins behind the border at 256; the third may be cut by one.
  EXPECT_THAT(offsets(2), ElementsAre(0, 256, 1000, 1320, 2000));
  EXPECT_THAT(offsets(1), ElementsAre(0, 128, 1000, 1320, 2000));
}

TEST(ChunkPackerTest, WhatStaysWholeIsRefusedInAChunkThatIsTooSmall) {
  std::vector<ParamSpec> params = Params({300});
  params[0].whole = true;
  const Elements small[] = {Elements(512)};
  EXPECT_THAT(PackChunks(params, small, {.world = 2, .shards = 2}),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("give chunks of 768 elements at least")));
  const Elements enough[] = {Elements(768)};
  EXPECT_THAT(PackChunks(params, enough, {.world = 2, .shards = 2}), IsOk());
  EXPECT_THAT(PackChunks(params, small, {.world = 2}), IsOk());
}

TEST(ChunkPackerTest, ParametersOfDifferentStatesShareNoChunk) {
  std::vector<ParamSpec> params = Params({10, 10, 10});
  params[1].states = 1;
  const Elements sizes[] = {Elements(256), Elements(256)};
  const ChunkLayout layout = PackChunks(params, sizes, {}).value();
  EXPECT_EQ(layout.place(ParamId(0)).chunk, layout.place(ParamId(2)).chunk);
  EXPECT_NE(layout.place(ParamId(0)).chunk, layout.place(ParamId(1)).chunk);
  EXPECT_EQ(layout.groups()[1].states, 1);
}

TEST(ChunkPackerTest, AnEmptyListIsAnEmptyLayout) {
  const Result<ChunkLayout> layout =
      PackChunks({}, std::span<const Elements>(), {});
  ASSERT_THAT(layout, IsOk());
  EXPECT_TRUE(layout->chunks().empty());
  EXPECT_TRUE(layout->groups().empty());
}

TEST(ChunkPackerTest, GroupsByDTypeAndTrainableInOrderOfFirstSight) {
  const std::vector<ParamSpec> params = {{"a", {8}, DType::kBF16, true},
                                         {"b", {8}, DType::kF32, true},
                                         {"c", {8}, DType::kBF16, false},
                                         {"d", {8}, DType::kBF16, true}};
  const std::vector<ParamGroup> groups = GroupParams(params);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_THAT(groups[0].params, ElementsAre(ParamId(0), ParamId(3)));
  EXPECT_EQ(groups[1].dtype, DType::kF32);
  EXPECT_FALSE(groups[2].trainable);

  const Elements sizes[] = {Elements(128), Elements(256), Elements(384)};
  const Result<ChunkLayout> layout = PackChunks(params, sizes, {});
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->place(ParamId(3)).chunk, layout->place(ParamId(0)).chunk);
  EXPECT_EQ(layout->place(ParamId(2)).chunk, ChunkId(2));
  EXPECT_EQ(layout->chunk(ChunkId(2)).size, Elements(384));
}

TEST(ChunkPackerTest, EqualsANaivePackerOnRandomLists) {
  std::mt19937_64 random(TestSeed(20240611));
  const int worlds[] = {1, 3, 8};
  const int64_t aligns[] = {64, 128, 192};
  for (int round = 0; round < 3000; ++round) {
    const int world = worlds[random() % 3];
    const int64_t align = aligns[random() % 3];
    const int64_t quantum = 128 * world;
    const int64_t chunk_size =
        quantum * (1 + static_cast<int64_t>(random() % 10));
    const PackOptions options = {.world = world, .align = Elements(align)};
    const std::vector<Elements> sizes =
        RandomSizes(random, 30, quantum, 12 * quantum);
    SCOPED_TRACE(testing::Message()
                 << "round " << round << " world " << world << " align "
                 << align << " C " << chunk_size);

    const std::vector<NaiveChunk> expected =
        NaivePacking(sizes, chunk_size, world, align);
    const std::vector<Elements> of_groups(sizes.empty() ? 0 : 1,
                                          Elements(chunk_size));
    const Result<ChunkLayout> layout =
        PackChunks(ParamsOf(sizes, DType::kBF16), of_groups, options);
    ASSERT_THAT(layout, IsOk());
    ASSERT_EQ(layout->chunks().size(), expected.size());
    for (size_t c = 0; c < expected.size(); ++c) {
      const ChunkInfo& chunk = layout->chunks()[c];
      ASSERT_EQ(chunk.size.count(), expected[c].size);
      ASSERT_EQ(chunk.used.count(), expected[c].used);
      ASSERT_EQ(chunk.oversize, expected[c].oversize);
      ASSERT_EQ(chunk.params.size(), expected[c].params.size());
      for (size_t i = 0; i < chunk.params.size(); ++i) {
        ASSERT_EQ(chunk.params[i].index(), expected[c].params[i]);
        ASSERT_EQ(layout->place(chunk.params[i]).offset.count(),
                  expected[c].offsets[i]);
      }
    }

    const NaiveCost cost = NaiveCostOf(sizes, chunk_size, world, align);
    const PackCount count = CountPacking(sizes, Elements(chunk_size), options);
    ASSERT_EQ(count.chunks, cost.chunks);
    ASSERT_EQ(count.oversize_chunks, cost.oversize_chunks);
    ASSERT_EQ(count.oversize_allocated.count(), cost.oversize_allocated);
    ASSERT_EQ(count.allocated.count(), cost.allocated);
  }
}

TEST(ChunkPackerTest, RefusesOptionsThatMeanNothing) {
  EXPECT_THAT(ValidatePackOptions({}), IsOk());
  EXPECT_THAT(ValidatePackOptions({.world = 8, .align = Elements(128)}),
              IsOk());
  for (const int world : {0, -1, std::numeric_limits<int>::max()}) {
    EXPECT_THAT(ValidatePackOptions({.world = world, .align = Elements(64)}),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("ranks")));
  }
  for (const int64_t align :
       {int64_t{0}, int64_t{-64}, int64_t{1}, int64_t{96}, int64_t{1} << 40}) {
    EXPECT_THAT(ValidatePackOptions({.world = 1, .align = Elements(align)}),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("alignment")));
  }
}

TEST(ChunkPackerTest, RefusesChunkSizesThatAreNoMultipleOfQ) {
  const PackOptions options = {.world = 3, .align = Elements(64)};
  for (const int64_t size : {0, -384, 128, 385}) {
    const Elements sizes[] = {Elements(size)};
    EXPECT_THAT(PackChunks(Params({1}), sizes, options),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("384")))
        << size;
  }
  EXPECT_THAT(PackChunks(Params({1}), std::span<const Elements>(), options),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("0 chunk sizes for 1 groups")));
}

TEST(ChunkPackerTest, NamesTheParameterWhoseShapeIsMalformed) {
  const std::vector<ParamSpec> params = {{"good", {1}, DType::kF32, true},
                                         {"bad", {-1}, DType::kF32, true}};
  const Elements sizes[] = {Elements(128)};
  EXPECT_THAT(PackChunks(params, sizes, {}),
              StatusIs(ErrorCode::kMalformed, HasSubstr("'bad'")));
}

TEST(ChunkPackerTest, RefusesSumsThatOverflow) {
  const Elements chunk[] = {Elements(128)};
  // Each fits 63 bits, their sum does not.
  EXPECT_THAT(
      PackChunks(Params(std::vector<int64_t>(40, int64_t{1} << 57)), chunk, {}),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("2^63 bits")));
  const Elements huge[] = {Elements((int64_t{1} << 62) / 128 * 128)};
  EXPECT_THAT(PackChunks(Params({1}), huge, {}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("2^63 bits")));
}

TEST(ChunkPackerDeathTest, CountingNeedsAnAllowedSize) {
  const std::vector<Elements> sizes = {Elements(1)};
  EXPECT_DEATH(CountPacking(sizes, Elements(0), {}), "CHECK");
  EXPECT_DEATH(CountPacking(sizes, Elements(129), {}), "CHECK");
}

}  // namespace
}  // namespace castor
