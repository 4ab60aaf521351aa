// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The shipped configs of public models give the numbers of parameters that are
// published for them, in either layout of experts.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "tools/models/model_list.h"
#include "tools/models/model_reader.h"

namespace castor {
namespace {

struct Published {
  std::string name;
  int64_t elements;
  size_t tensors;
  // Where the model has experts.
  size_t tensors_per_expert = 0;
};

class PublishedModelsTest : public testing::TestWithParam<Published> {};

int64_t ElementsOf(const ModelList& list) {
  int64_t sum = 0;
  for (const ParamSpec& spec : list.params) {
    sum += CountElements(spec.shape, spec.dtype).value().count();
  }
  return sum;
}

TEST_P(PublishedModelsTest, HaveAsManyParameters) {
  const Published& expected = GetParam();
  const std::string path = "tools/models/configs/" + expected.name;
  const auto model = ReadModel(path, {.expert_layout = ExpertLayout::kFused});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(ElementsOf(*model), expected.elements);
  EXPECT_EQ(model->params.size(), expected.tensors);
  if (expected.tensors_per_expert == 0) return;
  EXPECT_TRUE(model->notes.empty());
  const auto single =
      ReadModel(path, {.expert_layout = ExpertLayout::kPerExpert});
  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_EQ(ElementsOf(*single), expected.elements);
  EXPECT_EQ(single->params.size(), expected.tensors_per_expert);
}

// Sources: the totals that the hub gives for these models' safetensors, or half
// the total_size of their index; the model card for gpt-neox-20b. Where a file
// holds a tied head a second time (falcon-7b: 7,217,189,760, falcon-40b:
// 41,835,970,560) it is counted
// once. DeepSeek-V3's main model is published as 671,026,419,200 elements in
// 45,395 tensors: its parameters and the 256 elements of
// e_score_correction_bias in each of 58 layers, which are a buffer.
INSTANTIATE_TEST_SUITE_P(
    All, PublishedModelsTest,
    testing::Values(Published{"gpt2-xl", 1'557'611'200, 580},
                    Published{"llama-3-8b", 8'030'261'248, 291},
                    Published{"mistral-7b-v0.3", 7'248'023'552, 291},
                    Published{"qwen2.5-7b", 7'615'616'512, 339},
                    Published{"qwen3-8b", 8'190'735'360, 399},
                    Published{"gemma-2-9b", 9'241'705'984, 464},
                    Published{"gpt-neox-20b", 20'554'567'680, 532},
                    Published{"opt-350m", 331'196'416, 388},
                    Published{"opt-6.7b", 6'658'473'984, 516},
                    Published{"falcon-7b", 6'921'720'704, 195},
                    Published{"falcon-40b", 41'303'293'952, 483},
                    Published{"t5-base", 222'903'552, 257},
                    Published{"mixtral-8x7b", 46'702'792'704, 291, 995},
                    Published{"qwen1.5-moe-a2.7b", 14'315'784'192, 387, 4659},
                    Published{"qwen3-30b-a3b", 30'532'122'624, 531, 18867},
                    Published{"deepseek-v3", 671'026'419'200 - 58 * 256, 909,
                              45'395 - 58}),
    [](const testing::TestParamInfo<Published>& info) {
      std::string name = info.param.name;
      for (char& c : name) {
        if (c == '-' || c == '.') c = '_';
      }
      return name;
    });

// bert-base is published without its heads: 109,482,240 with the pooler, which
// BertForMaskedLM leaves out for a head of 622,650 parameters of its own.
TEST(PublishedModelsTest, HaveAHeadThatIsNotCounted) {
  const auto model = ReadModel("tools/models/configs/bert-base", {});
  ASSERT_TRUE(model.ok()) << model.status();
  const int64_t pooler = 768 * 768 + 768;
  const int64_t head = 30522 + 768 * 768 + 768 + 2 * 768;
  EXPECT_EQ(ElementsOf(*model), 109'482'240 - pooler + head);
}

}  // namespace
}  // namespace castor
