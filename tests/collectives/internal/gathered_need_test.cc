// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/internal/gathered_need.h"

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/chunk_packer.h"
#include "chunk/param_spec.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace castor::internal {
namespace {

using testing::ElementsAre;

// Three chunks of two parameters each, the last of them frozen and of a class
// of its own.
class GatheredNeedTest : public testing::Test {
 protected:
  static ChunkLayout MakeLayout() {
    std::vector<ParamSpec> specs;
    for (int p = 0; p < 6; ++p) {
      specs.push_back({"p" + std::to_string(p), {64}, DType::kF32, p < 4});
    }
    const Elements sizes[] = {Elements(128), Elements(128)};
    return *PackChunks(specs, sizes, PackOptions{});
  }
  std::vector<int64_t> Need(const std::vector<HeldTogether>& held,
                            const std::vector<bool>& direct = {}) {
    const int32_t classes[] = {0, 0, 1};
    return GatheredNeed(layout_, classes, held, direct);
  }
  static ParamId P(int id) { return ParamId(id); }

  ChunkLayout layout_ = MakeLayout();
};

TEST_F(GatheredNeedTest, CountsChunksAndNotParameters) {
  EXPECT_THAT(Need({{{P(0), P(1)}, {}}}), ElementsAre(1, 1));
  EXPECT_THAT(Need({{{P(0), P(2)}, {}}}), ElementsAre(2, 1));
  EXPECT_THAT(Need({{{P(0), P(2), P(4), P(5)}, {}}}), ElementsAre(2, 1));
}

TEST_F(GatheredNeedTest, MomentsAreNotAdded) {
  EXPECT_THAT(Need({{{P(0)}, {}}, {{P(2)}, {}}, {{P(4)}, {}}}),
              ElementsAre(1, 1));
}

TEST_F(GatheredNeedTest, AGradientIsHeldUntilAllOfItsChunkIsListed) {
  // Both gradients of chunk 0, then those of chunk 1.
  EXPECT_THAT(Need({{{}, {P(0)}}, {{}, {P(1)}}, {{}, {P(2)}}, {{}, {P(3)}}}),
              ElementsAre(1, 1));
  // One of chunk 0 comes back while chunk 1 is open.
  EXPECT_THAT(Need({{{}, {P(0), P(1)}}, {{}, {P(2)}}, {{}, {P(1)}}}),
              ElementsAre(2, 1));
  // One of chunk 0 never comes: its slot is held to the end.
  EXPECT_THAT(Need({{{}, {P(0)}}, {{}, {P(2)}}, {{P(0), P(3)}, {P(3)}}}),
              ElementsAre(4, 1));
}

TEST_F(GatheredNeedTest, ParametersUsedWhereTheyAreNeedNoSlot) {
  const std::vector<bool> all(3, true);
  EXPECT_THAT(Need({{{P(0), P(2), P(4)}, {}}}, all), ElementsAre(1, 0))
      << "gradients are reduced in one; the frozen class needs none";
  EXPECT_THAT(Need({{{P(0), P(2)}, {P(0)}}}, {true, false, false}),
              ElementsAre(2, 1));
}

TEST_F(GatheredNeedTest, WithoutDeclarationsTwoParametersAndTwoGradients) {
  EXPECT_THAT(Need({}), ElementsAre(4, 2));
}

TEST_F(GatheredNeedTest, ParametersOfSizeZeroNeedNothing) {
  const std::vector<ParamSpec> specs = {{"empty", {0}, DType::kF32, true},
                                        {"one", {64}, DType::kF32, true}};
  const Elements sizes[] = {Elements(128)};
  const ChunkLayout layout = *PackChunks(specs, sizes, PackOptions{});
  const int32_t classes[] = {0};
  EXPECT_THAT(GatheredNeed(layout, classes, {{{P(0)}, {P(0)}}}, {}),
              ElementsAre(1));
}

}  // namespace
}  // namespace castor::internal
