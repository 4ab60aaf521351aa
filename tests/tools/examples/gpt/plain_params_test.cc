// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/plain_params.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tools/examples/gpt/bf16.h"

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

}  // namespace
}  // namespace castor::gpt
