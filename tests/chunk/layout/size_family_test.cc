// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout/size_family.h"

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "chunk/base/dtype.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/chunk/naive_packing.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ParamSpec Param(int64_t elements, bool whole = false, int states = -1,
                DType dtype = DType::kF32) {
  ParamSpec spec = {"p", {elements}, dtype, true};
  spec.whole = whole;
  spec.states = states;
  return spec;
}

TEST(SizeFamilyTest, GroupsThatDifferInStatesAloneShareASize) {
  const std::vector<ParamSpec> params = {
      Param(10, false, 1), Param(20, false, 2),
      Param(30, false, 1, DType::kBF16), Param(40, false, 1)};
  const auto families = SizeFamilies(params, {}).value();
  ASSERT_EQ(families.size(), 2u);
  EXPECT_THAT(families[0].groups, ElementsAre(0, 1));
  EXPECT_THAT(families[0].packed[0].sizes,
              ElementsAre(Elements(10), Elements(40)));
  EXPECT_EQ(families[1].dtype, DType::kBF16);
  EXPECT_THAT(families[1].groups, ElementsAre(2));
  const Elements sizes[] = {Elements(256), Elements(512)};
  EXPECT_THAT(SizesOfGroups(families, sizes),
              ElementsAre(Elements(256), Elements(256), Elements(512)));
}

TEST(SizeFamilyTest, AShardHoldsTheLargestParameterThatStaysWhole) {
  const std::vector<ParamSpec> params = {Param(100), Param(300, true),
                                         Param(1000, false, 1)};
  const PackOptions pack = {.world = 4, .shards = 2};
  const auto families = SizeFamilies(params, pack).value();
  ASSERT_EQ(families.size(), 1u);
  // 300 elements begin and end at multiples of 64, in either of two shards.
  EXPECT_EQ(families[0].quantum, Elements(512));
  EXPECT_EQ(families[0].least, Elements(1024));
  EXPECT_THAT(families[0].packed[0].whole, ElementsAre(false, true));
  EXPECT_TRUE(families[0].packed[1].whole.empty());
  EXPECT_THAT(
      PackChunks(params, SizesOfGroups(families, {{Elements(1024)}}), pack),
      IsOk());
  EXPECT_THAT(
      PackChunks(params, SizesOfGroups(families, {{Elements(512)}}), pack),
      StatusIs(ErrorCode::kInvalidArgument));
}

TEST(SizeFamilyTest, OneShardCutsNothing) {
  const std::vector<ParamSpec> params = {Param(300, true)};
  const auto families = SizeFamilies(params, {.world = 4}).value();
  EXPECT_EQ(families[0].least, Elements(512));
  EXPECT_TRUE(families[0].packed[0].whole.empty());
}

TEST(SizeFamilyTest, NamesAParameterWhoseShapeIsMalformed) {
  std::vector<ParamSpec> params = {Param(300)};
  params[0].shape = {-1};
  EXPECT_THAT(SizeFamilies(params, {}),
              StatusIs(ErrorCode::kMalformed, HasSubstr("parameter 'p'")));
}

TEST(SizeFamilyTest, RefusesWhatNoChunkCouldLeaveWhole) {
  const std::vector<ParamSpec> params = {Param(int64_t{1} << 52, true),
                                         Param(10, true)};
  EXPECT_THAT(
      SizeFamilies(params, {.world = 1 << 20, .shards = 1 << 20}),
      StatusIs(ErrorCode::kInvalidArgument,
               HasSubstr("F32 parameters that are updated as a whole (2, the "
                         "largest of 4503599627370496 elements)")));
  const std::vector<ParamSpec> small = {Param(10, true)};
  EXPECT_THAT(
      SizeFamilies(small, {.world = 1 << 20,
                           .align = Elements(int64_t{1} << 30),
                           .shards = 1 << 20}),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("a smaller alignment")));
  EXPECT_THAT(SizeFamilies(small, {.world = 1 << 20, .shards = 1 << 20}),
              IsOk());
}

TEST(SizeFamilyTest, RefusesSumsThatCouldOverflow) {
  SizeFamily family;
  family.packed = {{{Elements(std::numeric_limits<int64_t>::max() / 256)}},
                   {{Elements(std::numeric_limits<int64_t>::max() / 256)}}};
  EXPECT_THAT(ValidateFamilySums(family, Elements(128), {}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("2^63")));
  family.packed.pop_back();
  EXPECT_THAT(ValidateFamilySums(family, Elements(128), {}), IsOk());
}

TEST(CountFamilyTest, EqualsTheLayoutAndItsDefinition) {
  std::mt19937_64 random(TestSeed(17));
  for (int round = 0; round < TestRounds(2000); ++round) {
    const int shards = 1 + static_cast<int>(random() % 4);
    const PackOptions pack = {
        .world = shards,
        .align = Elements(64 * (1 + static_cast<int64_t>(random() % 2))),
        .shards = shards};
    std::vector<ParamSpec> params;
    for (const Elements size : RandomSizes(random, 20, 128, 600)) {
      params.push_back(Param(size.count(), random() % 2 == 0,
                             static_cast<int>(random() % 2)));
    }
    const auto families = SizeFamilies(params, pack).value();
    if (families.empty()) continue;
    const Elements size =
        families[0].least +
        families[0].quantum * static_cast<int64_t>(random() % 4);
    const PackCount count = CountFamily(families[0].packed, size, pack);
    const ChunkLayout layout =
        PackChunks(params, SizesOfGroups(families, {{size}}), pack).value();
    SCOPED_TRACE(testing::Message() << "round " << round);
    EXPECT_EQ(count.chunks, static_cast<int64_t>(layout.chunks().size()));
    EXPECT_EQ(BytesOf(count.allocated, DType::kF32), layout.allocated_bytes());
    int64_t chunks = 0;
    for (const PackedGroup& group : families[0].packed) {
      chunks += static_cast<int64_t>(
          NaivePacking(group.sizes, size.count(), pack.world,
                       pack.align.count(), pack.shards, group.whole)
              .size());
    }
    EXPECT_EQ(count.chunks, chunks);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace castor
