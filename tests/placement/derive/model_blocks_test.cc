// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/derive/model_blocks.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/derive/step_model.h"
#include "tests/support/status_matchers.h"
#include "tools/models/families/config_values.h"
#include "tools/models/families/family_model.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<ParamSpec> Named(const std::vector<std::string>& names) {
  std::vector<ParamSpec> params;
  for (const std::string& name : names) {
    params.push_back({name, {4, 4}, DType::kF32, true});
  }
  return params;
}

// "embedding: 0 1" for each block: its name and what it holds on its way there.
std::vector<std::string> Lines(const std::vector<ModelBlock>& blocks) {
  std::vector<std::string> lines;
  for (const ModelBlock& block : blocks) {
    std::string line = block.name + ":";
    for (const ParamUse& use : block.forward) {
      for (const ParamId id : use.hold)
        line += " " + std::to_string(id.value());
      line += ";";
    }
    lines.push_back(line);
  }
  return lines;
}

TEST(ModelBlocksTest, LayersAreWhatIsNumbered) {
  const std::vector<ParamSpec> params =
      Named({"wte.weight", "wpe.weight", "h.0.ln.weight", "h.0.ln.bias",
             "h.0.mlp.weight", "h.1.ln.weight", "h.1.ln.bias", "h.1.mlp.weight",
             "ln_f.weight"});
  const std::vector<TiedParam> tied = {{"lm_head.weight", ParamId(0)}};
  EXPECT_THAT(Lines(FindModelBlocks(params, tied, HoldUnit::kBlock)),
              ElementsAre("embedding: 0 1;", "h.0: 2 3 4;", "h.1: 5 6 7;",
                          "head: 8 0;"));
  const std::vector<ModelBlock> modules =
      FindModelBlocks(params, tied, HoldUnit::kModule);
  EXPECT_THAT(Lines(modules), ElementsAre("embedding: 0; 1;", "h.0: 2 3; 4;",
                                          "h.1: 5 6; 7;", "head: 8; 0;"));
  EXPECT_THAT(modules[1].backward,
              ElementsAre(ParamUse{{ParamId(4)}, {ParamId(4)}},
                          ParamUse{{ParamId(2), ParamId(3)},
                                   {ParamId(2), ParamId(3)}}));
  // Tables are not needed again; the tied head is.
  EXPECT_THAT(modules[0].backward, ElementsAre(ParamUse{{}, {ParamId(1)}},
                                               ParamUse{{}, {ParamId(0)}}));
  EXPECT_THAT(modules[3].backward[0].hold, ElementsAre(ParamId(0)));
  EXPECT_EQ(modules[0].kind, BlockKind::kEmbedding);
  EXPECT_EQ(modules[2].kind, BlockKind::kLayer);
  EXPECT_EQ(modules[3].kind, BlockKind::kHead);
}

TEST(ModelBlocksTest, NamesTellEmbeddingFromHeadInAnyOrder) {
  // As some files sort them, and experts that lie apart from their layer.
  EXPECT_THAT(
      Lines(FindModelBlocks(Named({"blk.0.attn.weight", "blk.1.attn.weight",
                                   "output.weight", "output_norm.weight",
                                   "token_embd.weight", "blk.0.exps.weight"}),
                            {}, HoldUnit::kBlock)),
      ElementsAre("embedding: 4;", "blk.0: 0 5;", "blk.1: 1;", "head: 2 3;"));
}

TEST(ModelBlocksTest, WhatStandsBetweenTwoStacksStaysThere) {
  EXPECT_THAT(Lines(FindModelBlocks(
                  Named({"shared.weight", "encoder.block.0.layer.0.q.weight",
                         "encoder.block.0.layer.1.wi.weight",
                         "encoder.block.1.layer.0.q.weight",
                         "encoder.final_layer_norm.weight",
                         "decoder.block.0.layer.0.q.weight", "lm_head.weight"}),
                  {}, HoldUnit::kBlock)),
              ElementsAre("embedding: 0;", "encoder.block.0: 1 2;",
                          "encoder.block.1: 3;", "encoder.final_layer_norm: 4;",
                          "decoder.block.0: 5;", "head: 6;"));
}

TEST(ModelBlocksTest, SizesTellWhereNamesDoNot) {
  std::vector<ParamSpec> params = Named({"a", "b", "c", "d", "e", "f"});
  params[0].shape = {100};
  for (const size_t p : {1, 3}) params[p].shape = {7};
  params[5].shape = {50};
  EXPECT_THAT(Lines(FindModelBlocks(params, {}, HoldUnit::kBlock)),
              ElementsAre("embedding: 0;", "b: 1 2;", "d: 3 4;", "head: 5;"));
  // Nothing repeats: all together, or one thing at a time.
  for (size_t p = 0; p < params.size(); ++p) {
    params[p].shape = {static_cast<int64_t>(p + 1)};
  }
  EXPECT_THAT(Lines(FindModelBlocks(params, {}, HoldUnit::kBlock)),
              ElementsAre("model: 0 1 2 3 4 5;"));
  EXPECT_THAT(
      Lines(FindModelBlocks(params, {}, HoldUnit::kModule)),
      ElementsAre("a: 0;", "b: 1;", "c: 2;", "d: 3;", "e: 4;", "f: 5;"));
  EXPECT_THAT(FindModelBlocks({}, {}, HoldUnit::kBlock), IsEmpty());
}

// Every family's default model: an embedding, layers and a head, which hold
// every parameter once, and tied ones once more.
TEST(ModelBlocksTest, FindsTheBlocksOfEveryKnownFamily) {
  for (const std::string& family : KnownFamilies()) {
    SCOPED_TRACE(family);
    const Result<ConfigValues> config =
        ConfigValues::Parse(R"({"model_type": ")" + family + R"("})");
    ASSERT_THAT(config, IsOk());
    const Result<FamilyModel> model = BuildFamilyModel(*config);
    ASSERT_THAT(model, IsOk());
    std::map<std::string, ParamId> ids;
    std::vector<int> uses(model->params.size(), 1);
    for (size_t p = 0; p < model->params.size(); ++p) {
      ids[model->params[p].name] = ParamId(static_cast<int32_t>(p));
    }
    std::vector<TiedParam> tied;
    for (const TiedName& name : model->tied) {
      tied.push_back({name.name, ids.at(name.to)});
      ++uses[tied.back().param.index()];
    }
    const std::vector<ModelBlock> blocks =
        FindModelBlocks(model->params, tied, HoldUnit::kBlock);
    ASSERT_GT(blocks.size(), 3u);
    EXPECT_EQ(blocks.front().kind, BlockKind::kEmbedding);
    EXPECT_EQ(blocks.back().kind, BlockKind::kHead);
    int layers = 0;
    for (const ModelBlock& block : blocks) {
      layers += block.kind == BlockKind::kLayer;
      for (const ParamId id : block.forward[0].hold) --uses[id.index()];
    }
    EXPECT_GE(layers, 2);
    EXPECT_GE(layers + 3, static_cast<int>(blocks.size()));
    EXPECT_THAT(uses, testing::Each(0));
  }
}

}  // namespace
}  // namespace castor
