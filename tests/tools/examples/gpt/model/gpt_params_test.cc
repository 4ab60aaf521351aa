// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/model/gpt_params.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor::gpt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(GptParamsTest, TheDefaultModelHasAboutThirtyMillionParameters) {
  EXPECT_EQ(GptParams(GptConfig()).elements(), 28'634'624);
}

TEST(GptParamsTest, Gpt2HasItsPublishedSize) {
  const GptParams params({.vocab = 50257,
                          .context = 1024,
                          .layers = 12,
                          .heads = 12,
                          .embd = 768});
  EXPECT_EQ(params.elements(), 124'439'808);
}

TEST(GptParamsTest, IdsNameTheParametersTheyStandFor) {
  const GptParams params(
      {.vocab = 10, .context = 6, .layers = 3, .heads = 2, .embd = 4});
  EXPECT_EQ(params.all().size(), 2u + 3 * kBlockParams + 2);
  EXPECT_EQ(params.param(params.token_embedding()).name, "wte.weight");
  EXPECT_THAT(params.param(params.token_embedding()).shape, ElementsAre(10, 4));
  EXPECT_THAT(params.param(params.position_embedding()).shape,
              ElementsAre(6, 4));
  EXPECT_EQ(params.param(params.block(1, 0)).name, "h.1.ln_1.weight");
  EXPECT_EQ(params.param(params.block(2, kBlockParams - 1)).name,
            "h.2.mlp.c_proj.bias");
  EXPECT_EQ(params.param(params.final_ln_weight()).name, "ln_f.weight");
  EXPECT_EQ(params.final_ln_bias().index() + 1, params.all().size());
  std::set<std::string> names;
  for (const GptParam& param : params.all()) names.insert(param.name);
  EXPECT_EQ(names.size(), params.all().size());
}

TEST(GptParamsTest, RefusesModelsThatCannotBe) {
  EXPECT_THAT(Validate(GptConfig()), IsOk());
  EXPECT_THAT(Validate({.layers = 0}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("layers is 0")));
  EXPECT_THAT(Validate({.heads = 7, .embd = 512}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("518 would do")));
}

std::vector<float> Fill(const GptParam& param, int id, uint64_t seed,
                        int64_t begin, int64_t end) {
  std::vector<float> out(static_cast<size_t>(end - begin));
  FillInitialValues(GptConfig{.layers = 8}, param, ParamId(id), seed, begin,
                    end, out.data());
  return out;
}

constexpr int64_t kCount = 100'000;
const GptParam kWeight = {"w", {kCount}, InitialValue::kNormal};

TEST(InitialValuesTest, AnyRangeHasTheValuesItHasInTheWhole) {
  const std::vector<float> whole = Fill(kWeight, 3, 7, 0, kCount);
  const std::vector<float> part = Fill(kWeight, 3, 7, 1234, 5678);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 1234));
}

TEST(InitialValuesTest, DependOnSeedAndParameter) {
  const std::vector<float> values = Fill(kWeight, 3, 7, 0, 100);
  EXPECT_NE(values, Fill(kWeight, 3, 8, 0, 100));
  EXPECT_NE(values, Fill(kWeight, 4, 7, 0, 100));
}

void ExpectMoments(const std::vector<float>& values, double deviation) {
  double sum = 0;
  double squares = 0;
  for (float v : values) {
    sum += v;
    squares += double{v} * v;
  }
  EXPECT_NEAR(sum / kCount / deviation, 0, 0.02);
  EXPECT_NEAR(std::sqrt(squares / kCount) / deviation, 1, 0.02);
}

TEST(InitialValuesTest, HaveTheDeviationsOfGpt2) {
  ExpectMoments(Fill(kWeight, 3, 7, 0, kCount), 0.02);
  ExpectMoments(Fill({"w", {kCount}, InitialValue::kResidual}, 3, 7, 0, kCount),
                0.02 / 4);  // sqrt(2 * 8 layers)
}

TEST(InitialValuesTest, BiasesAreZeroAndNormsAreOne) {
  EXPECT_EQ(Fill({"b", {3}, InitialValue::kZero}, 0, 1, 0, 3),
            std::vector<float>(3, 0.0f));
  EXPECT_EQ(Fill({"n", {3}, InitialValue::kOne}, 0, 1, 1, 3),
            std::vector<float>(2, 1.0f));
}

TEST(RandomBitsTest, AreUniformInEveryBit) {
  int ones[64] = {};
  for (uint64_t i = 0; i < 10'000; ++i) {
    const uint64_t bits = RandomBits(1, 2, i);
    for (int b = 0; b < 64; ++b) ones[b] += static_cast<int>(bits >> b & 1);
  }
  for (int b = 0; b < 64; ++b) EXPECT_NEAR(ones[b], 5'000, 300) << b;
}

}  // namespace
}  // namespace castor::gpt
