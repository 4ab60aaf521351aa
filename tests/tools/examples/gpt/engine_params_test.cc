// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/engine_params.h"

#include <algorithm>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace castor::gpt {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const GptConfig kConfig = {.layers = 3, .heads = 4, .embd = 16};
const GptParams kParams(kConfig);

TEST(HeldMomentsTest, BeginWithTheEmbeddings) {
  const HeldMoment first = HeldMoments(kConfig).front();
  EXPECT_THAT(first.params, ElementsAre(kParams.token_embedding(),
                                        kParams.position_embedding()));
  EXPECT_THAT(first.grads, IsEmpty());
}

TEST(HeldMomentsTest, TheTiedEmbeddingsGradientIsOpenFromTheHeadToTheEnd) {
  const std::vector<HeldMoment> moments = HeldMoments(kConfig);
  const auto open = [](const HeldMoment& m) {
    return std::count(m.grads.begin(), m.grads.end(),
                      kParams.token_embedding()) == 1;
  };
  const auto first = std::find_if(moments.begin(), moments.end(), open);
  EXPECT_TRUE(std::all_of(first, moments.end(), open));
  EXPECT_GT(moments.end() - first, 3 * 6);
}

TEST(HeldMomentsTest, NeverHoldMoreThanTwoParametersAndThreeGradients) {
  for (const HeldMoment& moment : HeldMoments(kConfig)) {
    EXPECT_LE(moment.params.size(), 2u);
    EXPECT_LE(moment.grads.size(), 3u);
  }
}

TEST(HeldMomentsTest, NameEveryParameterAndEveryGradient) {
  std::set<ParamId> params;
  std::set<ParamId> grads;
  for (const HeldMoment& moment : HeldMoments(kConfig)) {
    params.insert(moment.params.begin(), moment.params.end());
    grads.insert(moment.grads.begin(), moment.grads.end());
  }
  EXPECT_EQ(params.size(), kParams.all().size());
  EXPECT_EQ(grads.size(), kParams.all().size());
}

}  // namespace
}  // namespace castor::gpt
