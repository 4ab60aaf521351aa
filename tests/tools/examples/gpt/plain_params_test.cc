// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/plain_params.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor::gpt {
namespace {

const GptConfig kConfig = {
    .vocab = 5, .context = 3, .layers = 1, .heads = 1, .embd = 4};
const ParamId kParam(1);

void Add(PlainParams<float>& params, float value) {
  float* const grad = *params.OpenGrad(kParam);
  grad[0] += value;
  ASSERT_THAT(params.CloseGrad(kParam, GradUse::kComplete), IsOk());
}

TEST(PlainParamsTest, AddsGradientsOfMicroBatchesInOrder) {
  PlainParams<float> params(kConfig, Precision::kFull, 1);
  params.BeginMicroBatch(true);
  Add(params, 1e8f);
  Add(params, 3);  // lost: added to the same place
  params.EndMicroBatch();
  params.BeginMicroBatch(false);
  Add(params, 3);
  Add(params, 3);  // together they count
  params.EndMicroBatch();
  EXPECT_EQ(params.gradient(kParam)[0], (1e8f + 3) + (3.0f + 3.0f));
  params.BeginMicroBatch(true);
  EXPECT_EQ(params.gradient(kParam)[0], 0);
}

TEST(PlainParamsTest, Bf16GradientsAreRoundedWhenTheyAreAdded) {
  PlainParams<float> params(kConfig, Precision::kBf16, 1);
  params.BeginMicroBatch(true);
  float* const grad = *params.OpenGrad(kParam);
  for (int i = 0; i < 100; ++i) grad[0] += 1 + 1.0f / 1024;
  ASSERT_THAT(params.CloseGrad(kParam, GradUse::kMoreToCome), IsOk());
  EXPECT_EQ(params.gradient(kParam)[0], 100);
  Add(params, 0.2f);
  EXPECT_EQ(params.gradient(kParam)[0], 100);
  Add(params, 0.3f);
  EXPECT_EQ(params.gradient(kParam)[0], 100.5);
}

TEST(PlainParamsTest, Bf16ParametersAreTheirMastersRounded) {
  PlainParams<float> params(kConfig, Precision::kBf16, 1);
  PlainParams<float> full(kConfig, Precision::kFull, 1);
  const float* values = nullptr;
  ASSERT_THAT(params.Hold({&kParam, 1}, {&values, 1}), IsOk());
  const std::span<float> master = params.master(kParam);
  EXPECT_TRUE(
      std::equal(master.begin(), master.end(), full.master(kParam).begin()));
  EXPECT_NE(values[0], master[0]);
  master[0] = 0.7f;
  params.RoundFromMaster(kParam);
  EXPECT_EQ(values[0], WidenBf16(RoundToBf16(0.7f)));
  EXPECT_EQ(params.master(kParam)[0], 0.7f);
}

TEST(Bf16Test, EveryBf16SurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float wide = WidenBf16(static_cast<uint16_t>(bits));
    if (std::isnan(wide)) {
      EXPECT_EQ(RoundToBf16(wide), 0x7FC0);
    } else {
      ASSERT_EQ(RoundToBf16(wide), bits);
    }
  }
}

TEST(Bf16Test, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(RoundToBf16(1.0f + 1.0f / 256), 0x3F80);      // a tie, down to even
  EXPECT_EQ(RoundToBf16(1.0f + 3.0f / 256), 0x3F82);      // a tie, up to even
  EXPECT_EQ(RoundToBf16(1.0f + 1.01f / 256), 0x3F81);     // above the tie
  EXPECT_EQ(RoundToBf16(-(1.0f + 1.01f / 256)), 0xBF81);  // below it
  EXPECT_EQ(RoundToBf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(RoundToBf16(std::numeric_limits<float>::denorm_min()), 0);
}

}  // namespace
}  // namespace castor::gpt
