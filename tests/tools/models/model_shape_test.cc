// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/model_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"
#include "tests/tools/models/model_files.h"
#include "tools/models/model_reader.h"

namespace castor {
namespace {

constexpr char kLlama[] = "tools/models/configs/llama-3-8b/config.json";
constexpr char kGpt2Xl[] = "tools/models/configs/gpt2-xl/config.json";

TransformerShape ShapeOf(const std::string& path) {
  return ReadModelShape(path, ReadModel(path, {}).value()).value();
}

TEST(ModelShapeTest, IsWhatAConfigSays) {
  const TransformerShape llama = ShapeOf(kLlama);
  EXPECT_EQ(llama.width, 4096);
  EXPECT_EQ(llama.heads, 32);
  EXPECT_EQ(llama.query_width, 4096);
  EXPECT_EQ(llama.key_width, 1024);
  EXPECT_EQ(llama.mlp_width, 14336);
  EXPECT_EQ(llama.vocab, 128256);
  EXPECT_TRUE(llama.gated_mlp);
  const TransformerShape gpt2 = ShapeOf(kGpt2Xl);
  EXPECT_EQ(gpt2.width, 1600);
  EXPECT_EQ(gpt2.heads, 25);
  EXPECT_EQ(gpt2.mlp_width, 0);  // null: four times the width
  EXPECT_FALSE(gpt2.gated_mlp);
}

TEST(ModelShapeTest, KnowsNormsExpertsAndLatents) {
  const auto of = [](const std::string& model) {
    return ShapeOf("tools/models/configs/" + model + "/config.json");
  };
  EXPECT_EQ(of("llama-3-8b").norm, NormKind::kRms);
  EXPECT_EQ(of("llama-3-8b").norms, 2);
  EXPECT_EQ(of("gpt2-xl").norm, NormKind::kLayer);
  EXPECT_EQ(of("gpt2-xl").activation_copies, 4);
  EXPECT_EQ(of("falcon-7b").norms, 1);
  EXPECT_EQ(of("gemma-2-9b").norm, NormKind::kRmsInFp32);
  EXPECT_EQ(of("gemma-2-9b").norms, 4);
  EXPECT_EQ(of("llama-3-8b").experts.count, 0);
  const TransformerShape mixtral = of("mixtral-8x7b");
  EXPECT_EQ(mixtral.experts.count, 8);
  EXPECT_EQ(mixtral.experts.used, 2);
  EXPECT_EQ(mixtral.experts.width, 14336);
  EXPECT_TRUE(mixtral.gated_mlp);
  const TransformerShape qwen = of("qwen3-30b-a3b");
  EXPECT_TRUE(qwen.head_norms);
  EXPECT_EQ(qwen.experts.used, 8);
  EXPECT_EQ(qwen.experts.width, 768);
  EXPECT_EQ(of("qwen1.5-moe-a2.7b").experts.shared_width, 5632);
  const TransformerShape deepseek = of("deepseek-v3");
  EXPECT_EQ(deepseek.latent_width, 1536 + 512);
  EXPECT_EQ(deepseek.query_width, 128 * 192);
  EXPECT_EQ(deepseek.value_width, 128 * 128);
  EXPECT_EQ(deepseek.experts.used, 8);
  EXPECT_EQ(deepseek.experts.shared_width, 2048);
  EXPECT_TRUE(deepseek.experts.fp32_router);
}

TEST(ModelShapeTest, IsWhatParametersTellWhereThereIsNoConfig) {
  TempFolder folder;
  const TransformerShape shape = ShapeOf(folder.Write(
      "m.tsv", "wte.weight\t50,8\tF32\nh.0.mlp.gate_proj\t8,8\tF32\n"));
  EXPECT_EQ(shape.width, 8);
  EXPECT_EQ(shape.vocab, 50);
  EXPECT_EQ(shape.heads, 0);
  EXPECT_TRUE(shape.gated_mlp);
  const std::string list = folder.Write(
      "list.json", R"([{"name": "w", "shape": [2, 3], "dtype": "F32"}])");
  EXPECT_EQ(ShapeOf(list).width, 0);
}

TEST(ModelShapeTest, SeesLayersThatAreNoAttention) {
  TempFolder folder;
  const auto other = [&](const std::string& name) {
    return ShapeOf(folder.Write("m.tsv", "wte.weight\t50,8\tF32\n" + name +
                                             "\t8,8\tF32\n"))
        .other_mixers;
  };
  EXPECT_FALSE(other("layers.0.self_attn.q_proj.weight"));
  EXPECT_TRUE(other("layers.0.mixer.A_log"));
  EXPECT_TRUE(other("layers.0.linear_attn.in_proj_qkvz.weight"));
}

TEST(ModelShapeTest, TakesNoNumberFromAnArrayOfOneForEachLayer) {
  TempFolder folder;
  const std::string config = folder.Write(
      "config.json",
      R"({"hidden_size":[8,16],"d_model":32,"num_heads":[2,4],"vocab_size":9})");
  const TransformerShape shape = ReadModelShape(config, ModelList()).value();
  EXPECT_EQ(shape.width, 32);
  EXPECT_EQ(shape.heads, 0);
  EXPECT_EQ(shape.vocab, 9);
}

TEST(ModelShapeTest, SaysWhyAConfigThatNobodyNamedWasRead) {
  TempFolder folder;
  const std::string list = folder.Write("m.tsv", "w\t50,8\tF32\n");
  const std::string config = folder.Write("config.json", "{\"n_head\":");
  const ModelList model = ReadModel(list, {}).value();
  EXPECT_THAT(
      ReadModelShape(list, model).status(),
      StatusIs(ErrorCode::kMalformed,
               testing::AllOf(
                   testing::StartsWith("\"" + config + "\", read for"),
                   testing::HasSubstr("because it lies beside \"" + list))));
  EXPECT_THAT(ReadModelShape(config, model).status(),
              StatusIs(ErrorCode::kMalformed,
                       testing::StartsWith("\"" + config + "\": ")));
}

}  // namespace
}  // namespace castor
