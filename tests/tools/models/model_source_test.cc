// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/model_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "tests/tools/models/model_files.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Names(const ModelSource& source) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : source.list.params) names.push_back(spec.name);
  return names;
}

const std::vector<ParamSpec> kWeights = {
    {"wte.weight", {10, 8}, DType::kF32},
    {"h.0.attn.bias", {1, 1, 4, 4}, DType::kF32},
    {"wpe.weight", {4, 8}, DType::kF32},
    {"step", {}, DType::kI64}};

const std::string kTinyConfig =
    R"({"model_type":"gpt2","n_embd":8,"n_layer":0,"n_head":2,"n_positions":4,
        "vocab_size":10})";

TEST(ModelSourceTest, ReadsListsInBothFormsWhateverTheirName) {
  const TempFolder folder;
  for (const std::string& path :
       {folder.Write("list.tsv", "b\t2\tF32\na\t1\tBF16\n"),
        folder.Write("list", "\n b\t2\tF32\na\t1\tBF16\n"),
        folder.Write("list.json",
                     R"( [{"name":"b","shape":[2],"dtype":"F32"},
                          {"name":"a","shape":[1],"dtype":"BF16"}])")}) {
    const auto source = ReadModelSource(path);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ(source->kind, SourceKind::kList);
    EXPECT_EQ(source->list.name, "list");
    EXPECT_EQ(source->list.params.size(), 2u);
    EXPECT_EQ(source->list.params[1].dtype, DType::kBF16);
  }
  // A list is taken at its word.
  const auto mask =
      ReadModelSource(folder.Write("m.tsv", "h.0.attn.masked_bias\t1\tI32\n"));
  EXPECT_EQ(mask->list.params.size(), 1u);
  EXPECT_EQ(ReadModelSource(folder.Write("empty", ""))->list.params.size(), 0u);
}

TEST(ModelSourceTest, ReadsAConfigUnderAnyName) {
  const TempFolder folder;
  for (const std::string& path :
       {folder.Write("tiny/config.json", kTinyConfig), folder.At("tiny"),
        folder.Write("tiny.json", kTinyConfig)}) {
    const auto source = ReadModelSource(path);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ(source->kind, SourceKind::kConfig);
    EXPECT_EQ(source->list.name, "tiny");
    EXPECT_EQ(source->list.family, "gpt2");
    EXPECT_EQ(source->list.params.size(), 4u);
  }
}

TEST(ModelSourceTest, DropsNonParametersOfWeightFiles) {
  const TempFolder folder;
  const auto source = ReadModelSource(
      WriteSafetensors(folder, "tiny/model.safetensors", kWeights));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->kind, SourceKind::kWeights);
  EXPECT_EQ(source->list.name, "tiny");
  EXPECT_EQ(source->list.source, "model.safetensors (header)");
  EXPECT_THAT(Names(*source), ElementsAre("wte.weight", "wpe.weight"));
  ASSERT_EQ(source->list.dropped.size(), 2u);
  EXPECT_EQ(source->list.dropped[0].name, "h.0.attn.bias");
  EXPECT_EQ(source->list.dropped[0].reason, "attention mask");
  EXPECT_EQ(source->list.dropped[1].name, "step");
  EXPECT_FALSE(source->family.has_value());
}

TEST(ModelSourceTest, ReadsAnIndexAndItsShards) {
  const TempFolder folder;
  WriteSafetensors(folder, "a-1.safetensors", {kWeights[0]});
  WriteSafetensors(folder, "a-2.safetensors", {kWeights[2]});
  const std::string path =
      folder.Write("a.safetensors.index.json",
                   R"({"weight_map":{"wte.weight":"a-1.safetensors",
                        "wpe.weight":"a-2.safetensors"}})");
  for (const std::string& model : {path, folder.path()}) {
    const auto source = ReadModelSource(model);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ(source->list.source, "a.safetensors.index.json and 2 headers");
    EXPECT_THAT(Names(*source), ElementsAre("wte.weight", "wpe.weight"));
  }
}

TEST(ModelSourceTest, RefusesATensorInTwoShards) {
  const TempFolder folder;
  WriteSafetensors(folder, "a-1.safetensors", {kWeights[0]});
  WriteSafetensors(folder, "a-2.safetensors", {kWeights[0]});
  const Status status =
      ReadModelSource(
          folder.Write("a.safetensors.index.json",
                       R"({"weight_map":{"wte.weight":"a-1.safetensors",
                                         "x":"a-2.safetensors"}})"))
          .status();
  EXPECT_EQ(ExitCode(status.code()), 4) << status;
}

TEST(ModelSourceTest, TakesTheFamilyFromTheConfigBeside) {
  const TempFolder folder;
  const std::string file =
      WriteSafetensors(folder, "model.safetensors", kWeights);
  folder.Write("config.json", kTinyConfig);
  for (const std::string& path : {file, folder.path()}) {
    const auto source = ReadModelSource(path);
    ASSERT_TRUE(source.ok()) << source.status();
    ASSERT_TRUE(source->family.has_value());
    EXPECT_EQ(source->list.family, "gpt2");
    EXPECT_EQ(source->list.params.size(), 2u);
  }
}

TEST(ModelSourceTest, SaysWhyAConfigBesideDoesNotHelp) {
  const TempFolder folder;
  const std::string file =
      WriteSafetensors(folder, "model.safetensors", kWeights);
  folder.Write("config.json", R"({"model_type":"rwkv"})");
  EXPECT_THAT(ReadModelSource(file)->list.notes,
              Contains(HasSubstr("the unknown family \"rwkv\"")));
  folder.Write("config.json", "{}");
  EXPECT_THAT(ReadModelSource(file)->list.notes,
              Contains(HasSubstr("names no model_type")));
  folder.Write("config.json", "{");
  EXPECT_EQ(ExitCode(ReadModelSource(file).status().code()), 4);
}

TEST(ModelSourceTest, PlansAQuantizedModelByItsConfig) {
  const TempFolder folder;
  const std::string file =
      WriteSafetensors(folder, "model.safetensors", kWeights);
  folder.Write("config.json",
               R"({"model_type":"gpt2","n_layer":0,"quantization_config":{}})");
  const auto source = ReadModelSource(folder.path());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->kind, SourceKind::kConfig);
  EXPECT_THAT(source->list.notes,
              Contains(HasSubstr("shapes in model.safetensors are packed")));
  EXPECT_THAT(ReadModelSource(file)->list.notes,
              Contains(HasSubstr("shapes in the file are packed")));
}

// A cache as huggingface_hub lays it out, and the variable that leads to it.
class HubSourceTest : public testing::Test {
 protected:
  void SetUp() override { setenv("HF_HUB_CACHE", folder_.path().c_str(), 1); }
  void TearDown() override { unsetenv("HF_HUB_CACHE"); }

  void Link(const std::string& file, const std::string& blob) {
    const fs::path link =
        fs::path(folder_.At("models--org--tiny/snapshots/r1")) / file;
    fs::create_directories(link.parent_path());
    fs::create_symlink("../../blobs/" + blob, link);
  }

  TempFolder folder_;
};

TEST_F(HubSourceTest, ReadsADownloadedModelByItsName) {
  WriteSafetensors(folder_, "models--org--tiny/blobs/0123", kWeights);
  folder_.Write("models--org--tiny/blobs/4567", kTinyConfig);
  folder_.Write("models--org--tiny/refs/main", "r1");
  Link("model.safetensors", "0123");
  Link("config.json", "4567");
  for (const std::string name : {"org/tiny", "org/tiny@r1"}) {
    const auto source = ReadModelSource(name);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ(source->list.name, "org/tiny");
    EXPECT_EQ(source->list.family, "gpt2");
    EXPECT_THAT(Names(*source), ElementsAre("wte.weight", "wpe.weight"));
    EXPECT_THAT(source->list.notes,
                Contains(HasSubstr("read from the hub cache: ")));
  }
  const Status none = ReadModelSource("org/none").status();
  EXPECT_EQ(ExitCode(none.code()), 2);
  EXPECT_THAT(std::string(none.message()), HasSubstr("models--org--none"));
  // A word is a mistyped path first.
  EXPECT_THAT(std::string(ReadModelSource("none").status().message()),
              HasSubstr("no such file or folder"));
}

TEST_F(HubSourceTest, SaysThatABlobIsMissing) {
  folder_.Write("models--org--tiny/refs/main", "r1");
  Link("model.safetensors", "gone");
  const Status status = ReadModelSource("org/tiny").status();
  EXPECT_EQ(ExitCode(status.code()), 4) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a link to a file that is missing"));
}

TEST(ModelSourceTest, PrefersAPathToTheHub) {
  const TempFolder folder;
  folder.Write("org/tiny", "a\t1\tF32\n");
  const fs::path here = fs::current_path();
  fs::current_path(folder.path());
  const auto source = ReadModelSource("org/tiny");
  fs::current_path(here);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->kind, SourceKind::kList);
}

TEST(ModelSourceTest, StandsAConfigInForPickles) {
  const TempFolder folder;
  folder.Write("config.json", kTinyConfig);
  folder.Write("pytorch_model-00001-of-00002.bin", "");
  folder.Write("pytorch_model-00002-of-00002.bin", "");
  folder.Write("pytorch_model.bin.index.json", "{}");
  const auto source = ReadModelSource(folder.path());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->kind, SourceKind::kConfig);
  EXPECT_THAT(
      source->list.notes,
      ElementsAre("\"pytorch_model-00001-of-00002.bin\" and 2 more are not "
                  "read; the parameters are those that config.json describes"));
  folder.Write("config.json", R"({"model_type":"rwkv"})");
  const Status unknown = ReadModelSource(folder.path()).status();
  EXPECT_EQ(ExitCode(unknown.code()), 2);
  EXPECT_THAT(std::string(unknown.message()),
              testing::AllOf(HasSubstr("and 2 more are not read"),
                             HasSubstr("\"rwkv\" is not a family")));
}

TEST(ModelSourceTest, NamesMissingShards) {
  const TempFolder folder;
  folder.Write("config.json", kTinyConfig);
  std::string map;
  for (int i = 0; i < 12; ++i) {
    map += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) + "\":\"m-" +
           std::to_string(i) + ".safetensors\"";
  }
  folder.Write("model.safetensors.index.json",
               "{\"weight_map\":{" + map + "}}");
  WriteSafetensors(folder, "m-3.safetensors", {{"t3", {2}}});
  // The config is the user's to name: what was meant to be read is not there.
  const Status status = ReadModelSource(folder.path()).status();
  EXPECT_EQ(ExitCode(status.code()), 4);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("11 of 12 shards are missing"),
                             HasSubstr("\"m-0.safetensors\", \"m-1."),
                             HasSubstr(", ...; download them, or give the "
                                       "model's config.json")));
  EXPECT_TRUE(ReadModelSource(folder.At("config.json")).ok());
}

struct Refused {
  std::string file;
  std::string bytes;
  int exit_code;
  std::string message;
};

class RefusedSourceTest : public testing::TestWithParam<Refused> {};

TEST_P(RefusedSourceTest, SaysWhatToGiveInstead) {
  const TempFolder folder;
  const Status status =
      ReadModelSource(folder.Write(GetParam().file, GetParam().bytes)).status();
  EXPECT_EQ(ExitCode(status.code()), GetParam().exit_code) << status;
  EXPECT_THAT(
      std::string(status.message()),
      testing::AllOf(HasSubstr(folder.path()), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedSourceTest,
    testing::Values(
        Refused{"a.gguf", "", 2,
                ".gguf files are never opened; give the model's config.json "
                "or .safetensors"},
        Refused{"renamed", "GGUF\3", 2, "GGUF files are never opened"},
        Refused{"pytorch_model.bin", "", 2, "give the model's config.json"},
        Refused{"pytorch_model.bin.index.json", "{}", 2, "are never opened"},
        Refused{"config.json", R"({"model_type":"rwkv"})", 2,
                "\"rwkv\" is not a family that Castor derives"},
        Refused{"config.json", R"({"model_type":"rwkv"})", 2,
                "known are gpt2, llama, mistral, qwen2, qwen3, smollm3"},
        Refused{"config.json", R"({"model_type":"gpt-2"})", 2,
                "did you mean gpt2?"},
        Refused{"config.json", R"({"n_layer":1})", 4, "has no model_type"},
        Refused{"config.json", "", 4, "config.json\" is empty"},
        Refused{"list.json", " \n", 4, "list.json\" is empty"},
        Refused{"config.json", R"({"model_type":"gpt2","n_head":0})", 4,
                "\"n_head\" is 0"},
        Refused{"a.safetensors.index.json", "[]", 4, "an array"},
        Refused{"a.safetensors", "", 4, "holds 0 bytes"},
        Refused{"list.tsv", "a b c\n", 4, "line 1"},
        Refused{"list.json", "[1]", 4, "[0] is 1"},
        Refused{"list.bad", std::string("\0\1\2", 3), 4, "line 1"}));

TEST(ModelSourceTest, NamesAPathThatLeadsNowhere) {
  const TempFolder folder;
  const Status status = ReadModelSource(folder.At("none")).status();
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no such file"));
  EXPECT_EQ(ExitCode(ReadModelSource("").status().code()), 2);
}

}  // namespace
}  // namespace castor
