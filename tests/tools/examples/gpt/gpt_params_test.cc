// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/gpt_params.h"

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
  EXPECT_EQ(params.param(params.block(1, BlockParam::kLn1Weight)).name,
            "h.1.ln_1.weight");
  EXPECT_EQ(params.param(params.block(2, BlockParam::kMlpOutBias)).name,
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

}  // namespace
}  // namespace castor::gpt
