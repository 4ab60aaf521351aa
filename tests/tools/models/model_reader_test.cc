// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/model_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "tests/tools/models/model_files.h"
#include "tools/models/families/config_values.h"
#include "tools/models/families/family_model.h"
#include "tools/models/model_list.h"

namespace castor {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Names(const ModelList& list) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : list.params) names.push_back(spec.name);
  return names;
}

int64_t ElementsOf(const ModelList& list) {
  int64_t sum = 0;
  for (const ParamSpec& spec : list.params) {
    sum += CountElements(spec.shape, spec.dtype).value().count();
  }
  return sum;
}

constexpr char kUnsorted[] = "h.10.w\t2\tF32\nh.9.w\t2\tF32\na\t2\tF32\n";

TEST(ModelReaderTest, ReadsTheShippedConfigs) {
  const auto gpt2 = ReadModel("tools/models/configs/gpt2-xl/config.json", {});
  ASSERT_TRUE(gpt2.ok()) << gpt2.status();
  EXPECT_EQ(gpt2->name, "gpt2-xl");
  EXPECT_EQ(gpt2->params.size(), 580u);
  EXPECT_EQ(ElementsOf(*gpt2), 1'557'611'200);
  EXPECT_EQ(gpt2->order, ParamOrder::kFamily);
  EXPECT_THAT(gpt2->notes, IsEmpty());

  const auto llama = ReadModel("tools/models/configs/llama-3-8b", {});
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(llama->name, "llama-3-8b");
  EXPECT_EQ(llama->params.size(), 291u);
  EXPECT_EQ(ElementsOf(*llama), 8'030'261'248);
  EXPECT_EQ(llama->params[0].dtype, DType::kBF16);
  EXPECT_THAT(llama->notes, IsEmpty());
}

TEST(ModelReaderTest, PacksAListInTheOrderOfItsLines) {
  const TempFolder folder;
  const std::string json =
      R"([{"name":"h.10.w","shape":[2],"dtype":"F32"},
          {"name":"h.9.w","shape":[2],"dtype":"F32"},
          {"name":"a","shape":[2],"dtype":"F32"}])";
  for (const std::string& path :
       {folder.Write("list.tsv", kUnsorted), folder.Write("list.json", json)}) {
    const auto list = ReadModel(path, {});
    ASSERT_TRUE(list.ok()) << list.status();
    EXPECT_EQ(list->order, ParamOrder::kFile);
    EXPECT_THAT(Names(*list), ElementsAre("h.10.w", "h.9.w", "a"));
    EXPECT_THAT(list->notes, IsEmpty());

    const auto natural = ReadModel(path, {.order = ParamOrder::kNatural});
    EXPECT_EQ(natural->order, ParamOrder::kNatural);
    EXPECT_THAT(Names(*natural), ElementsAre("a", "h.9.w", "h.10.w"));
    const auto file = ReadModel(path, {.order = ParamOrder::kFile});
    EXPECT_THAT(Names(*file), ElementsAre("h.10.w", "h.9.w", "a"));
    const Status family =
        ReadModel(path, {.order = ParamOrder::kFamily}).status();
    EXPECT_EQ(family.code(), ErrorCode::kInvalidArgument);
  }
}

TEST(ModelReaderTest, OrdersAConfigByFamilyOrNaturally) {
  const std::string path = "tools/models/configs/gpt2-xl/config.json";
  EXPECT_EQ(ReadModel(path, {})->params[0].name, "transformer.wte.weight");
  const auto natural = ReadModel(path, {.order = ParamOrder::kNatural});
  EXPECT_EQ(natural->params[0].name, "transformer.h.0.attn.c_attn.bias");
  EXPECT_EQ(natural->params.back().name, "transformer.wte.weight");
  EXPECT_EQ(ReadModel(path, {.order = ParamOrder::kFile}).status().code(),
            ErrorCode::kInvalidArgument);
}

// The same model from its config and from a file as torch writes it: sorted as
// text, without the prefix, with masks and a tied head.
TEST(ModelReaderTest, PutsAFileIntoTheOrderOfItsConfig) {
  const TempFolder folder;
  const std::string config =
      R"({"model_type":"gpt2","n_embd":8,"n_layer":12,"n_head":2,
          "n_positions":4,"vocab_size":10})";
  std::vector<ParamSpec> specs =
      BuildFamilyModel(*ConfigValues::Parse(config))->params;
  std::vector<std::string> expected;
  for (ParamSpec& spec : specs) {
    spec.name = spec.name.substr(std::string("transformer.").size());
    expected.push_back(spec.name);
  }
  specs.push_back({"lm_head.weight", {10, 8}});
  specs.push_back({"h.0.attn.bias", {1, 1, 4, 4}});
  std::sort(
      specs.begin(), specs.end(),
      [](const ParamSpec& a, const ParamSpec& b) { return a.name < b.name; });
  const std::string file = WriteSafetensors(folder, "model.safetensors", specs);
  const auto alone = ReadModel(file, {});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->order, ParamOrder::kNatural);
  EXPECT_EQ(alone->params.size(), expected.size() + 1);

  folder.Write("config.json", config);
  for (const std::string& path : {file, folder.path()}) {
    const auto model = ReadModel(path, {});
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->order, ParamOrder::kFamily);
    EXPECT_EQ(model->family, "gpt2");
    EXPECT_EQ(Names(*model), expected);
    EXPECT_THAT(model->notes, IsEmpty());
    ASSERT_EQ(model->dropped.size(), 2u);
    EXPECT_EQ(model->dropped[1].reason, "tied to transformer.wte.weight");
  }
  const auto by_file = ReadModel(file, {.order = ParamOrder::kFile});
  EXPECT_EQ(by_file->params[0].name, "h.0.attn.c_attn.bias");
  // The head is no further parameter in any order.
  for (const ParamOrder order : {ParamOrder::kFile, ParamOrder::kNatural}) {
    const auto ordered = ReadModel(file, {.order = order});
    EXPECT_EQ(ordered->params.size(), expected.size());
    EXPECT_EQ(ordered->dropped.size(), 2u);
  }
}

TEST(ModelReaderTest, FreezesByNameOnceExpertsAreAsAsked) {
  const TempFolder folder;
  std::string list = "head.weight\t4\tF32\n";
  for (const std::string role : {"w1", "w3"}) {
    list += "m.experts.0." + role + ".weight\t6,4\tF32\n";
  }
  list += "m.experts.0.w2.weight\t4,6\tF32\n";
  const std::string path = folder.Write("moe.tsv", list);
  const auto model = ReadModel(path, {.expert_layout = ExpertLayout::kFused,
                                      .freeze = {"*gate_up_proj"}});
  ASSERT_TRUE(model.ok()) << model.status();
  for (const ParamSpec& spec : model->params) {
    EXPECT_EQ(spec.trainable, spec.name != "m.experts.gate_up_proj");
  }
  const auto only = ReadModel(path, {.only = {"head.*"}});
  ASSERT_TRUE(only.ok()) << only.status();
  for (const ParamSpec& spec : only->params) {
    EXPECT_EQ(spec.trainable, spec.name == "head.weight");
  }
  const Status none = ReadModel(path, {.only = {"heat.weight"}}).status();
  EXPECT_EQ(ExitCode(none.code()), 2);
  EXPECT_THAT(std::string(none.message()),
              HasSubstr("did you mean \"head.weight\"?"));
}

// As such models lie on the hub: experts one by one, sorted as text, with a
// statistic of the router and a layer that predicts a second token.
TEST(ModelReaderTest, PutsExpertsIntoTheOrderOfEitherLayout) {
  const std::vector<std::string> configs = {
      R"({"model_type":"mixtral","hidden_size":8,"intermediate_size":12,
          "num_hidden_layers":2,"num_attention_heads":4,
          "num_key_value_heads":2,"vocab_size":10,"num_local_experts":12})",
      R"({"model_type":"qwen3_moe","hidden_size":8,"intermediate_size":12,
          "num_hidden_layers":2,"num_attention_heads":4,
          "num_key_value_heads":2,"vocab_size":10,"num_experts":12,
          "mlp_only_layers":[0]})",
      R"({"model_type":"deepseek_v3","hidden_size":8,"vocab_size":10,
          "num_hidden_layers":2,"num_attention_heads":2,"n_routed_experts":12,
          "first_k_dense_replace":1})"};
  for (const std::string& config : configs) {
    SCOPED_TRACE(config);
    const ConfigValues values = *ConfigValues::Parse(config);
    std::vector<ParamSpec> specs =
        BuildFamilyModel(values, ExpertLayout::kPerExpert)->params;
    const bool deepseek = *values.model_type() == "deepseek_v3";
    if (deepseek) {
      specs.push_back(
          {"model.layers.1.mlp.gate.e_score_correction_bias", {12}});
      specs.push_back({"model.layers.2.eh_proj.weight", {8, 16}});
    }
    std::sort(
        specs.begin(), specs.end(),
        [](const ParamSpec& a, const ParamSpec& b) { return a.name < b.name; });
    const TempFolder folder;
    WriteSafetensors(folder, "model.safetensors", specs);
    folder.Write("config.json", config);
    for (const ExpertLayout layout :
         {ExpertLayout::kPerExpert, ExpertLayout::kFused}) {
      const auto model = ReadModel(folder.path(), {.expert_layout = layout});
      ASSERT_TRUE(model.ok()) << model.status();
      EXPECT_THAT(model->notes, IsEmpty());
      EXPECT_EQ(model->dropped.size(), deepseek ? 2u : 0u);
      const std::vector<ParamSpec> expected =
          BuildFamilyModel(values, layout)->params;
      ASSERT_EQ(model->params.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(model->params[i].shape, expected[i].shape)
            << model->params[i].name << " for " << expected[i].name;
      }
    }
    // Unless asked, the file's own layout, in its own order.
    const auto as_is = ReadModel(folder.path(), {});
    ModelList expected;
    expected.params =
        BuildFamilyModel(values, ExpertLayout::kPerExpert)->params;
    EXPECT_EQ(Names(*as_is), Names(expected));
  }
}

TEST(ModelReaderTest, FallsBackWhereTheConfigKnowsNoName) {
  const TempFolder folder;
  const std::string file =
      WriteSafetensors(folder, "model.safetensors", {{"x", {2}}, {"a", {2}}});
  folder.Write("config.json", R"({"model_type":"gpt2"})");
  const auto model = ReadModel(file, {});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->order, ParamOrder::kNatural);
  EXPECT_THAT(Names(*model), ElementsAre("a", "x"));
  EXPECT_THAT(model->notes, Contains(HasSubstr("none of its names")));
  EXPECT_EQ(ReadModel(file, {.order = ParamOrder::kFamily}).status().code(),
            ErrorCode::kInvalidArgument);
}

TEST(ModelReaderTest, ReplacesTheType) {
  const TempFolder folder;
  const std::string path = folder.Write("l.tsv", "a\t3\tF32\nb\t3\tF16\n");
  const auto model = ReadModel(path, {.dtype = DType::kBF16});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->params[0].dtype, DType::kBF16);
  EXPECT_EQ(model->params[1].dtype, DType::kBF16);
  // Three elements of four bits end inside a byte, and the caller asked.
  EXPECT_EQ(ReadModel(path, {.dtype = DType::kF4}).status().code(),
            ErrorCode::kInvalidArgument);
}

TEST(ModelReaderTest, ChangesTheLayoutOfExperts) {
  const TempFolder folder;
  std::string list;
  for (const std::string expert : {"0", "1"}) {
    for (const std::string role : {"w1", "w3"}) {
      list += "m.experts." + expert + "." + role + ".weight\t6,4\tF32\n";
    }
    list += "m.experts." + expert + ".w2.weight\t4,6\tF32\n";
  }
  const std::string path = folder.Write("moe.tsv", list);
  const auto as_is = ReadModel(path, {});
  EXPECT_EQ(as_is->params.size(), 6u);
  EXPECT_THAT(as_is->notes, Contains(HasSubstr("--expert-layout")));
  const auto fused = ReadModel(path, {.expert_layout = ExpertLayout::kFused});
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_THAT(Names(*fused),
              ElementsAre("m.experts.gate_up_proj", "m.experts.down_proj"));
  EXPECT_EQ(ElementsOf(*fused), ElementsOf(*as_is));

  const auto none = ReadModel(folder.Write("l.tsv", "a\t3\tF32\n"),
                              {.expert_layout = ExpertLayout::kFused});
  EXPECT_THAT(none->notes, ElementsAre(HasSubstr("has no experts")));
}

TEST(ModelReaderTest, RefusesAModelThatNobodyCanHold) {
  const TempFolder folder;
  const std::string half = std::to_string(kMaxModelElements / 2);
  const std::string just = "a\t" + half + "\tU8\nb\t" + half + "\tU8\n";
  EXPECT_TRUE(ReadModel(folder.Write("just.tsv", just), {}).ok());
  const Status status =
      ReadModel(folder.Write("more.tsv", just + "c\t1\tU8\n"), {}).status();
  EXPECT_EQ(ExitCode(status.code()), 4);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor \"c\""));
}

TEST(ModelReaderTest, AStepFollowsItsParametersToTheirPlaces) {
  const TempFolder folder;
  const std::string path = folder.Write(
      "list.tsv",
      "b\t2\tF32\na\t3\tF32\n\tstep\tseparate\n\thold\tb\n\tgrads\ta\n");
  const auto by_name = ReadModel(path, {.order = ParamOrder::kNatural});
  ASSERT_TRUE(by_name.ok()) << by_name.status();
  ASSERT_EQ(by_name->step.uses.size(), 1u);
  EXPECT_EQ(by_name->params[by_name->step.uses[0].hold[0].index()].name, "b");
  EXPECT_EQ(by_name->params[by_name->step.uses[0].grads[0].index()].name, "a");
}

}  // namespace
}  // namespace castor
