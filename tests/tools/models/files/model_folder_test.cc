// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "tests/tools/models/model_files.h"

namespace castor {
namespace {

using testing::HasSubstr;

struct Chosen {
  std::vector<std::string> files;
  std::string weights;
  std::string config;
};

class ModelFolderTest : public testing::TestWithParam<Chosen> {};

TEST_P(ModelFolderTest, ChoosesAsTransformersDoes) {
  const TempFolder folder;
  for (const std::string& file : GetParam().files) folder.Write(file, "{}");
  const auto found = LookIntoFolder(folder.path());
  ASSERT_TRUE(found.ok()) << found.status();
  const auto whole = [&](const std::string& name) {
    return name.empty() ? name : folder.At(name);
  };
  EXPECT_EQ(found->weights, whole(GetParam().weights));
  EXPECT_EQ(found->config, whole(GetParam().config));
}

INSTANTIATE_TEST_SUITE_P(
    All, ModelFolderTest,
    testing::Values(
        Chosen{{"config.json"}, "", "config.json"},
        Chosen{{"config.json", "pytorch_model.bin",
                "pytorch_model.bin.index.json"},
               "",
               "config.json"},
        Chosen{{"config.json", "a.gguf"}, "", "config.json"},
        Chosen{{"a.gguf", "model.safetensors"}, "model.safetensors", ""},
        Chosen{{"model.safetensors"}, "model.safetensors", ""},
        Chosen{{"config.json", "model.safetensors",
                "model.safetensors.index.json", "x.safetensors"},
               "model.safetensors",
               "config.json"},
        Chosen{{"model.safetensors.index.json", "consolidated.safetensors",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors"},
               "model.safetensors.index.json",
               ""},
        Chosen{{"adapter.safetensors", "README.md"}, "adapter.safetensors", ""},
        Chosen{{"x.safetensors.index.json", "x-1.safetensors"},
               "x.safetensors.index.json",
               ""}));

TEST(ModelFolderTest, RefusesToGuess) {
  const TempFolder folder;
  EXPECT_EQ(LookIntoFolder(folder.path()).status().code(),
            ErrorCode::kInvalidArgument);
  folder.Write("b.safetensors", "");
  folder.Write("a.safetensors", "");
  const Status two = LookIntoFolder(folder.path()).status();
  EXPECT_EQ(two.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(std::string(two.message()),
              HasSubstr("holds 2 weight files and no rule chooses among them; "
                        "name one of a.safetensors, b.safetensors"));
  EXPECT_FALSE(LookIntoFolder(folder.At("none")).ok());
}

TEST(ModelFolderTest, ListsWhatTheConfigStandsFor) {
  const TempFolder folder;
  folder.Write("pytorch_model.bin", "");
  const Status unread = LookIntoFolder(folder.path()).status();
  EXPECT_EQ(unread.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(std::string(unread.message()),
              HasSubstr("\"pytorch_model.bin\" is of a kind that is never "
                        "opened"));
  folder.Write("config.json", "{}");
  folder.Write("a.gguf", "");
  const auto found = LookIntoFolder(folder.path());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->unread,
              testing::ElementsAre("a.gguf", "pytorch_model.bin"));
  folder.Write("model.safetensors", "");
  EXPECT_TRUE(LookIntoFolder(folder.path())->unread.empty());
}

TEST(ModelFolderTest, FindsTheConfigBesideAFile) {
  const TempFolder folder;
  const std::string weights = folder.Write("model.safetensors", "");
  EXPECT_EQ(ConfigBeside(weights), "");
  folder.Write("config.json", "{}");
  EXPECT_EQ(ConfigBeside(weights), folder.At("config.json"));
}

TEST(ModelFolderTest, NamesTheModel) {
  const TempFolder folder;
  folder.Write("gpt2/config.json", "{}");
  EXPECT_EQ(ModelNameOf(folder.At("gpt2")), "gpt2");
  EXPECT_EQ(ModelNameOf(folder.At("gpt2/")), "gpt2");
  EXPECT_EQ(ModelNameOf(folder.At("gpt2/.")), "gpt2");
  EXPECT_EQ(ModelNameOf(folder.At("gpt2/config.json")), "gpt2");
  EXPECT_EQ(ModelNameOf(folder.At("gpt2/model.safetensors")), "gpt2");
  EXPECT_EQ(ModelNameOf(folder.At("gpt2/tiny.safetensors")), "tiny");
  EXPECT_EQ(ModelNameOf("lists/gpt2-xl.tsv"), "gpt2-xl");
  EXPECT_EQ(ModelNameOf("a/big.safetensors.index.json"), "big");
  folder.Write("models--org--name/snapshots/0123abcd/config.json", "{}");
  EXPECT_EQ(ModelNameOf(folder.At("models--org--name/snapshots/0123abcd")),
            "org/name");
}

}  // namespace
}  // namespace castor
