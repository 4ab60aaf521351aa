// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/sealing/run_chunks.h"

#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/record/record_format.h"
#include "placement/run_event.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(RunChunksTest, ListsNamesWithoutTheirCount) {
  EXPECT_THAT(ListedNames(""), IsEmpty());
  EXPECT_THAT(ListedNames("a"), ElementsAre("a"));
  EXPECT_THAT(ListedNames("a,b,+12"), ElementsAre("a", "b"));
  EXPECT_THAT(ListedNames("a,+,+0,+x1"), ElementsAre("a", "+", "+0", "+x1"));
}

TEST(RunChunksTest, NamesAFewAndCountsTheOthers) {
  EXPECT_EQ(FewNames(""), "");
  EXPECT_EQ(FewNames("a,b,c"), "a,b,c");
  EXPECT_EQ(FewNames("a,b,c,d,e"), "a,b,c,+2");
  EXPECT_EQ(FewNames("a,b,c,d,+7"), "a,b,c,+8");
}

TEST(RunChunksTest, NamesEveryParameterOfARecord) {
  std::vector<ParamSpec> params;
  std::vector<std::string_view> names;
  for (int i = 0; i < 500; ++i) {
    ParamSpec& spec = params.emplace_back();
    spec.name = "layers." + std::to_string(i) + ".attention.projection.weight";
    spec.shape = {3};
  }
  for (const ParamSpec& spec : params) names.push_back(spec.name);
  const std::vector<Elements> sizes = {Elements(64 * 512)};
  const auto layout = PackChunks(params, sizes, {});
  ASSERT_THAT(layout, IsOk());
  RunRankInfo rank;
  rank.chunks = RunChunksOf(*layout, names);
  ASSERT_THAT(rank.chunks, SizeIs(1));
  std::string frame;
  AppendRankFrame(rank, &frame);
  RunRankInfo read;
  ASSERT_TRUE(
      DecodeRank(std::string_view(frame).substr(kFrameHeaderBytes), &read));
  EXPECT_EQ(ListedNames(read.chunks[0].params), names);
}

}  // namespace
}  // namespace castor
