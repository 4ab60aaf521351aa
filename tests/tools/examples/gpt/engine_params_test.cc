// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/engine_params.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/derive/step_model.h"
#include "tests/support/status_matchers.h"
#include "tools/models/files/param_list.h"

namespace castor::gpt {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const GptConfig kConfig = {.layers = 3, .heads = 4, .embd = 16};
const GptParams kParams(kConfig);

TEST(StepOfTest, BeginsWithTheEmbeddings) {
  for (const bool in_place : {false, true}) {
    const DeclaredStep step = StepOf(kConfig, in_place);
    EXPECT_EQ(step.grads_in_place, in_place);
    EXPECT_THAT(
        step.uses.front().hold,
        ElementsAre(kParams.token_embedding(), kParams.position_embedding()));
    EXPECT_THAT(step.uses.front().grads, IsEmpty());
  }
}

TEST(StepOfTest, OpensTheTiedEmbeddingsGradientAtTheHeadAndAtTheEnd) {
  const std::vector<ParamUse> uses = StepOf(kConfig, false).uses;
  std::vector<size_t> opened;
  for (size_t i = 0; i < uses.size(); ++i) {
    if (uses[i].grads == std::vector{kParams.token_embedding()}) {
      opened.push_back(i);
    }
  }
  ASSERT_EQ(opened.size(), 2u);
  EXPECT_EQ(opened[1], uses.size() - 1);
  EXPECT_GT(opened[1] - opened[0], 3u * 6);
}

TEST(StepOfTest, NeverHoldsMoreThanTwoParametersOrOpensMoreGradients) {
  for (const bool in_place : {false, true}) {
    for (const ParamUse& use : StepOf(kConfig, in_place).uses) {
      EXPECT_LE(use.hold.size(), 2u);
      EXPECT_LE(use.grads.size(), 2u);
      EXPECT_FALSE(use.hold.empty() && use.grads.empty());
    }
  }
}

TEST(StepOfTest, UsesEveryParameterAndEveryGradient) {
  std::set<ParamId> params;
  std::set<ParamId> grads;
  for (const ParamUse& use : StepOf(kConfig, false).uses) {
    params.insert(use.hold.begin(), use.hold.end());
    grads.insert(use.grads.begin(), use.grads.end());
  }
  EXPECT_EQ(params.size(), kParams.all().size());
  EXPECT_EQ(grads.size(), kParams.all().size());
}

const GptConfig kModel = {
    .vocab = 256, .context = 16, .layers = 2, .heads = 2, .embd = 8};

TEST(ModelListTest, IsReadBackAsTheModelsOwnParameters) {
  const GptParams params(kModel);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Result<ParamList> list =
        ParseTsvList(ModelList(kModel, dtype, GradMode::kSeparate));
    ASSERT_THAT(list, IsOk());
    EXPECT_EQ(list->step, StepOf(kModel, false));
    const std::vector<ParamSpec>* const read = &list->params;
    ASSERT_EQ(read->size(), params.all().size());
    for (size_t p = 0; p < read->size(); ++p) {
      EXPECT_EQ((*read)[p].name, params.all()[p].name);
      EXPECT_EQ((*read)[p].shape, params.all()[p].shape);
      EXPECT_EQ((*read)[p].dtype, dtype);
      EXPECT_TRUE((*read)[p].trainable);
    }
  }
}

TEST(ModelListTest, HasALineForEachParameter) {
  EXPECT_EQ(ModelList(kModel, DType::kBF16, GradMode::kReuse).substr(0, 43),
            "wte.weight\t256,8\tBF16\nwpe.weight\t16,8\tBF16\n");
}

}  // namespace
}  // namespace castor::gpt
