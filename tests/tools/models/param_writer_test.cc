// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/param_spec.h"
#include "tests/tools/models/param_lines.h"
#include "tools/models/expert_layout.h"
#include "tools/models/family_parts.h"
#include "tools/models/model_list.h"

namespace castor {
namespace {

using testing::ElementsAre;

TEST(ParamWriterTest, WritesModulesInTheirOrder) {
  std::vector<ParamSpec> params;
  ParamWriter writer(DType::kBF16, &params);
  writer.Add("e", {3});
  writer.Linear("a", 2, 5);
  writer.Linear("b", 2, 5, true);
  writer.Conv1d("c", 2, 5);
  writer.RmsNorm("r", 4);
  writer.LayerNorm("l", 4);
  EXPECT_THAT(ParamLines(params),
              ElementsAre("e 3", "a.weight 5,2", "b.weight 5,2", "b.bias 5",
                          "c.weight 2,5", "c.bias 5", "r.weight 4",
                          "l.weight 4", "l.bias 4"));
  for (const ParamSpec& spec : params) EXPECT_EQ(spec.dtype, DType::kBF16);
}

TEST(ParamWriterTest, WritesGatedMlps) {
  std::vector<ParamSpec> params;
  ParamWriter writer(DType::kF32, &params);
  writer.GatedMlp("m.", 2, 5);
  writer.GatedMlp("n.", 2, 5, true);
  EXPECT_THAT(ParamLines(params),
              ElementsAre("m.gate_proj.weight 5,2", "m.up_proj.weight 5,2",
                          "m.down_proj.weight 2,5", "n.gate_proj.weight 5,2",
                          "n.gate_proj.bias 5", "n.up_proj.weight 5,2",
                          "n.up_proj.bias 5", "n.down_proj.weight 2,5",
                          "n.down_proj.bias 2"));
}

// What is written in one layout is what the other is rewritten to.
TEST(ParamWriterTest, WritesExpertsInBothLayouts) {
  const ExpertSizes sizes = {.count = 2, .width = 4, .inner = 6};
  for (const ExpertNames names :
       {ExpertNames::kProjections, ExpertNames::kNumbers}) {
    std::vector<ParamSpec> fused;
    ParamWriter(DType::kF32, &fused)
        .Experts("x.experts", sizes, ExpertLayout::kFused, names);
    EXPECT_THAT(ParamLines(fused), ElementsAre("x.experts.gate_up_proj 2,12,4",
                                               "x.experts.down_proj 2,4,6"));
    std::vector<ParamSpec> single;
    ParamWriter(DType::kF32, &single)
        .Experts("x.experts", sizes, ExpertLayout::kPerExpert, names);
    ASSERT_EQ(single.size(), 6u);
    EXPECT_EQ(ParamLines(single)[1], names == ExpertNames::kProjections
                                         ? "x.experts.0.up_proj.weight 6,4"
                                         : "x.experts.0.w2.weight 4,6");
    ASSERT_TRUE(ApplyExpertLayout(ExpertLayout::kFused, single).ok());
    EXPECT_EQ(ParamLines(single), ParamLines(fused));
  }
}

}  // namespace
}  // namespace castor
