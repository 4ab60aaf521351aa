// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/families/expert_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "tests/tools/models/param_lines.h"
#include "tools/models/model_list.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A router, `experts` experts of M=6 and H=4, and a norm.
std::vector<ParamSpec> MoeLayer(int experts) {
  std::vector<ParamSpec> params = {{"l.0.mlp.gate.weight", {2, 4}}};
  for (int e = 0; e < experts; ++e) {
    const std::string prefix = "l.0.mlp.experts." + std::to_string(e) + ".";
    params.push_back({prefix + "gate_proj.weight", {6, 4}});
    params.push_back({prefix + "up_proj.weight", {6, 4}});
    params.push_back({prefix + "down_proj.weight", {4, 6}});
  }
  params.push_back({"l.0.norm.weight", {4}});
  return params;
}

TEST(ExpertLayoutTest, FindsTheLayout) {
  EXPECT_EQ(FindExpertLayout({{"w", {4}}}), std::nullopt);
  EXPECT_EQ(FindExpertLayout(MoeLayer(2)), ExpertLayout::kPerExpert);
  EXPECT_EQ(FindExpertLayout({{"l.0.mlp.experts.gate_up_proj", {2, 12, 4}}}),
            ExpertLayout::kFused);
  EXPECT_EQ(FindExpertLayout({{"m.experts.7.w1.weight", {6, 4}}}),
            ExpertLayout::kPerExpert);
  EXPECT_EQ(FindExpertLayout({{"m.shared_experts.up_proj.weight", {6, 4}}}),
            std::nullopt);
}

TEST(ExpertLayoutTest, FusesAndSplitsBack) {
  std::vector<ParamSpec> params = MoeLayer(3);
  ASSERT_TRUE(ApplyExpertLayout(ExpertLayout::kFused, params).ok());
  EXPECT_THAT(
      ParamLines(params),
      ElementsAre("l.0.mlp.gate.weight 2,4",
                  "l.0.mlp.experts.gate_up_proj 3,12,4",
                  "l.0.mlp.experts.down_proj 3,4,6", "l.0.norm.weight 4"));
  const std::vector<ParamSpec> fused = params;
  ASSERT_TRUE(ApplyExpertLayout(ExpertLayout::kFused, params).ok());
  EXPECT_EQ(ParamLines(params), ParamLines(fused));

  ASSERT_TRUE(ApplyExpertLayout(ExpertLayout::kPerExpert, params).ok());
  EXPECT_EQ(ParamLines(params), ParamLines(MoeLayer(3)));
}

TEST(ExpertLayoutTest, SplitsEachInItsPlaceWhereTheyStandApart) {
  std::vector<ParamSpec> params = {{"a.experts.down_proj", {2, 4, 6}},
                                   {"a.experts.gate_up_proj", {1, 12, 4}},
                                   {"b.experts.down_proj", {1, 4, 6}}};
  ASSERT_TRUE(ApplyExpertLayout(ExpertLayout::kPerExpert, params).ok());
  EXPECT_THAT(ParamLines(params),
              ElementsAre("a.experts.0.down_proj.weight 4,6",
                          "a.experts.1.down_proj.weight 4,6",
                          "a.experts.0.gate_proj.weight 6,4",
                          "a.experts.0.up_proj.weight 6,4",
                          "b.experts.0.down_proj.weight 4,6"));
}

TEST(ExpertLayoutTest, FusesMixtralsNames) {
  std::vector<ParamSpec> params = {{"m.experts.0.w1.weight", {6, 4}},
                                   {"m.experts.0.w2.weight", {4, 6}},
                                   {"m.experts.0.w3.weight", {6, 4}}};
  ASSERT_TRUE(ApplyExpertLayout(ExpertLayout::kFused, params).ok());
  EXPECT_THAT(ParamLines(params), ElementsAre("m.experts.gate_up_proj 1,12,4",
                                              "m.experts.down_proj 1,4,6"));
}

TEST(ExpertLayoutTest, LeavesFusedTensorsOfOtherFormsAlone) {
  const std::vector<std::vector<ParamSpec>> forms = {
      // The other way around, as Llama 4 has them.
      {{"m.experts.gate_up_proj", {2, 4, 12}},
       {"m.experts.down_proj", {2, 6, 4}}},
      // With biases, as GPT-OSS has them.
      {{"m.experts.gate_up_proj", {2, 12, 4}},
       {"m.experts.gate_up_proj_bias", {2, 12}},
       {"m.experts.down_proj", {2, 4, 6}}},
      // Without a gate.
      {{"m.experts.up_proj", {2, 6, 4}}, {"m.experts.down_proj", {2, 4, 6}}}};
  for (const std::vector<ParamSpec>& form : forms) {
    EXPECT_EQ(FindExpertLayout(form), std::nullopt);
    std::vector<ParamSpec> params = form;
    EXPECT_TRUE(ApplyExpertLayout(ExpertLayout::kFused, params).ok());
    const Status status = ApplyExpertLayout(ExpertLayout::kPerExpert, params);
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("_proj\" cannot be split by expert: "));
    EXPECT_EQ(ParamLines(params), ParamLines(form));
  }
}

void ExpectRefused(ExpertLayout layout, std::vector<ParamSpec> params,
                   const std::string& message) {
  const Status status = ApplyExpertLayout(layout, params);
  EXPECT_EQ(status.code(), ErrorCode::kMalformed) << message;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(ExpertLayoutTest, RefusesALayerThatIsNotWhole) {
  std::vector<ParamSpec> params = MoeLayer(3);
  params.erase(params.begin() + 4, params.begin() + 7);
  ExpectRefused(ExpertLayout::kFused, params, "expert 1 is missing");
  params = MoeLayer(3);
  params.erase(params.begin() + 6);
  ExpectRefused(ExpertLayout::kFused, params,
                "expert 1 has no down_proj.weight");
  params = MoeLayer(3);
  params[4].shape = {7, 4};
  ExpectRefused(ExpertLayout::kFused, params, "differs from that of expert 0");
  params = MoeLayer(3);
  params[5].dtype = DType::kBF16;
  ExpectRefused(ExpertLayout::kFused, params, "differs from that of expert 0");
  params = MoeLayer(1);
  params[3].shape = {6, 4};
  ExpectRefused(ExpertLayout::kFused, params, "are not [M,H]");
  params = MoeLayer(1);
  params.push_back({"l.0.mlp.experts.0.w1.weight", {6, 4}});
  ExpectRefused(ExpertLayout::kFused, params, "are the same matrix");
}

TEST(ExpertLayoutTest, RefusesToSplitWhatHasNoExperts) {
  const auto split = ExpertLayout::kPerExpert;
  ExpectRefused(split, {{"m.experts.gate_up_proj", {12, 4}}}, "[E,2M,H]");
  ExpectRefused(split, {{"m.experts.gate_up_proj", {2, 3, 4}}}, "[E,2M,H]");
  ExpectRefused(split, {{"m.experts.down_proj", {int64_t{1} << 40, 0, 0}}},
                "at most 65536 experts");
  std::vector<ParamSpec> many;
  for (int i = 0; i < 100; ++i) {
    many.push_back({std::to_string(i) + ".experts.down_proj", {65'536, 0, 0}});
  }
  ExpectRefused(split, many, "makes more than 2000000 tensors");
}

}  // namespace
}  // namespace castor
