// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/files/weight_files.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/layout/safetensors_format.h"
#include "chunk/param_spec.h"
#include "chunk/text/json_value.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/files/tensor_digest.h"
#include "collectives/checkpoint/files/tensor_files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::ElementsAre;

class WeightFilesTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_.File(name), std::ios::binary | std::ios::trunc) << bytes;
  }
  // A file of F32 tensors of two elements each, all bytes of the n-th being n.
  static std::string FileOf(const std::vector<std::string>& names) {
    std::vector<SafetensorsEntry> entries;
    std::string data;
    for (const std::string& name : names) {
      const uint64_t begin = data.size();
      data.append(8, static_cast<char>(entries.size()));
      entries.push_back({name, DType::kF32, {2}, begin, data.size()});
    }
    return *WriteSafetensorsHeader(entries, {}) + data;
  }

  TempDir dir_;
};

TEST_F(WeightFilesTest, AFileAnIndexOrAFolderOfEitherIsFound) {
  EXPECT_EQ(FindWeightFiles(dir_.File("none")), "");
  EXPECT_EQ(FindWeightFiles(dir_.path().string()), "");
  Write("model.safetensors", "");
  EXPECT_EQ(FindWeightFiles(dir_.path().string()),
            dir_.File("model.safetensors"));
  Write("model.safetensors.index.json", "");
  EXPECT_EQ(FindWeightFiles(dir_.path().string()),
            dir_.File("model.safetensors.index.json"));
  for (const char* name :
       {"model.safetensors", "model.safetensors.index.json"}) {
    EXPECT_EQ(FindWeightFiles(dir_.File(name)), dir_.File(name));
  }
  Write("notes.txt", "");
  EXPECT_EQ(FindWeightFiles(dir_.File("notes.txt")), "");
}

TEST_F(WeightFilesTest, AnIndexSaysWhichFileHasWhat) {
  ASSERT_OK_AND_ASSIGN(const WeightIndex index,
                       ParseWeightIndex(
                           R"({"metadata": {"total_size": 24, "weight_map": 3},
          "weight_map": {"b": "2.safetensors", "a": "1.safetensors",
                         "c": "1.safetensors"}})"));
  ASSERT_EQ(index.size(), 2u);
  EXPECT_THAT(index.at("1.safetensors"), ElementsAre("a", "c"));
  EXPECT_THAT(index.at("2.safetensors"), ElementsAre("b"));
  const std::pair<std::string, std::string> wrong[] = {
      {"{}", "no weight_map"},
      {R"({"weight_map": []})", "not an object"},
      {R"({"weight_map": "a.safetensors"})", "not an object"},
      {R"({"weight_map": {"a": 1}})", "not an object"},
      {R"({"weight_map": {"a": {"b": "c.safetensors"}}})", "not an object"},
      {R"({"weight_map": {"a": "../b.safetensors"}})", "beside the index"},
      {R"({"weight_map": {"a": "b.bin"}})", "beside the index"},
      {"{", "byte"}};
  for (const auto& [text, why] : wrong) {
    EXPECT_THAT(ParseWeightIndex(text),
                StatusIs(ErrorCode::kMalformed, Says(why)))
        << text;
  }
}

TEST_F(WeightFilesTest, FilesThatAgreeReadAsACheckpointOfStepZero) {
  const std::string index = dir_.File("model.safetensors.index.json");
  const std::string map =
      R"({"weight_map": {"a": "1.safetensors", "b": "1.safetensors",
                         "c": "2.safetensors"}})";
  Write("model.safetensors.index.json", map);
  Write("1.safetensors", FileOf({"b", "a"}));
  Write("2.safetensors", FileOf({"c"}));
  ASSERT_OK_AND_ASSIGN(
      const auto reader,
      CheckpointReader::Find(dir_.path().string(), std::nullopt));
  EXPECT_TRUE(reader.weights_only());
  const CheckpointManifest& manifest = reader.manifest();
  ASSERT_EQ(manifest.params.size(), 3u);
  EXPECT_EQ(manifest.step, 0);
  EXPECT_EQ(manifest.params[1].name, "a");
  uint32_t second = 0;
  ASSERT_THAT(reader.Read(1, manifest.params[1].states[0], 1, 1, &second),
              IsOk());
  EXPECT_EQ(second, 0x01010101u);
  EXPECT_THAT(CheckpointReader::Find(dir_.path().string(), 4),
              StatusIs(ErrorCode::kInvalidArgument, Says("no step 4")));

  // Files of different downloads.
  Write("2.safetensors", FileOf({"c", "d"}));
  EXPECT_THAT(CheckpointReader::OpenWeights(index),
              StatusIs(ErrorCode::kMalformed, Says("\"d\", which the")));
  Write("2.safetensors", FileOf({}));
  EXPECT_THAT(
      CheckpointReader::OpenWeights(index),
      StatusIs(ErrorCode::kMalformed, Says("does not hold tensor \"c\"")));
  std::filesystem::remove(dir_.File("2.safetensors"));
  EXPECT_THAT(CheckpointReader::OpenWeights(index),
              StatusIs(ErrorCode::kMalformed, Says("2.safetensors")));
  Write("1.safetensors", FileOf({"b", "a"}).substr(0, 40));
  EXPECT_THAT(CheckpointReader::OpenWeights(dir_.File("1.safetensors")),
              StatusIs(ErrorCode::kMalformed));
}

// Byte by byte what the reference reader takes: length, JSON, spaces up to a
// multiple of 8, tensors without a hole, the widest type first.
TEST(TensorFilesTest, WritesHeadersAsTheFormatHasThem) {
  const std::vector<ParamSpec> tensors = {
      {"half", {3}, DType::kBF16, true},
      {"w \"1\"", {2, 2}, DType::kF32, true},
      {"none", {0}, DType::kF32, true}};
  ASSERT_OK_AND_ASSIGN(const TensorFiles plan,
                       PlanTensorFiles("model", tensors, kDefaultMaxFile));
  ASSERT_EQ(plan.files.size(), 1u);
  const TensorFile& file = plan.files[0];
  std::string json =
      R"({"__metadata__":{"format":"pt"},)"
      R"("w \"1\"":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("none":{"dtype":"F32","shape":[0],"data_offsets":[16,16]},)"
      R"("half":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string head(8, '\0');
  head[0] = static_cast<char>(json.size() & 0xff);
  head[1] = static_cast<char>(json.size() >> 8);
  EXPECT_EQ(file.head, head + json);
  EXPECT_EQ(file.name, "model.safetensors");
  EXPECT_EQ(file.bytes, file.head.size() + 22);
  EXPECT_THAT(file.tensors, ElementsAre(1, 2, 0));
  EXPECT_EQ(plan.places[1].offset, file.head.size());
  EXPECT_EQ(plan.places[0].offset, file.head.size() + 16);
  EXPECT_EQ(plan.index, "");
}

TEST(TensorFilesTest, SharesTensorsOutAmongFilesWithAnIndex) {
  std::vector<ParamSpec> tensors;
  for (const char* name : {"a", "b", "c", "d"}) {
    tensors.push_back({name, {10}, DType::kF32, true});
  }
  tensors[2].shape = {100};  // more than a file
  ASSERT_OK_AND_ASSIGN(const TensorFiles plan,
                       PlanTensorFiles("model", tensors, Bytes(80)));
  ASSERT_EQ(plan.files.size(), 3u);
  EXPECT_THAT(plan.files[0].tensors, ElementsAre(0, 1));
  EXPECT_THAT(plan.files[1].tensors, ElementsAre(2));
  EXPECT_EQ(plan.files[2].name, "model-00003-of-00003.safetensors");
  EXPECT_EQ(plan.index_name, "model.safetensors.index.json");
  const JsonValue index = ParseJson(plan.index).value();
  EXPECT_EQ(index["metadata"]["total_size"].integer(), 520);
  EXPECT_EQ(index["weight_map"]["c"].text(),
            "model-00002-of-00003.safetensors");
}

TEST(TensorFilesTest, RefusesNamesThatNoReaderFinds) {
  for (const char* name : {"", "__metadata__", "\xff"}) {
    const ParamSpec tensor{name, {1}, DType::kF32, true};
    EXPECT_THAT(PlanTensorFiles("model", {&tensor, 1}, kDefaultMaxFile),
                StatusIs(ErrorCode::kInvalidArgument));
  }
  const std::vector<ParamSpec> twice(2, {"w", {1}, DType::kF32, true});
  // Even in files of their own.
  EXPECT_THAT(PlanTensorFiles("model", twice, Bytes(1)),
              StatusIs(ErrorCode::kInvalidArgument, Says("\"w\"")));
}

TEST(TensorDigestTest, AddsUpAlikeHoweverATensorIsCut) {
  std::vector<float> values(64 * 5 + 13);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i * i);
  }
  const int64_t all = static_cast<int64_t>(values.size());
  const uint64_t whole = DigestOfElements(values.data(), DType::kF32, 0, all);
  for (int64_t cut = 0; cut < all; cut += kDigestElements) {
    EXPECT_EQ(
        DigestOfElements(values.data() + cut, DType::kF32, cut, all - cut) +
            DigestOfElements(values.data(), DType::kF32, 0, cut),
        whole);
  }
  // Blocks that change places are noticed, and so is any bit.
  std::swap(values[3], values[64 + 3]);
  EXPECT_NE(DigestOfElements(values.data(), DType::kF32, 0, all), whole);
}

TEST(TensorDigestTest, ReadsItsOwnText) {
  for (const uint64_t digest :
       {uint64_t{0}, uint64_t{0xfe}, ~uint64_t{0}, uint64_t{1} << 63}) {
    EXPECT_THAT(ParseDigest(DigestText(digest)), IsOkAndHolds(digest));
  }
  for (const char* text : {"", "12", "0x23456789abcdef", "0123456789abcdefa"}) {
    EXPECT_THAT(ParseDigest(text), StatusIs(ErrorCode::kMalformed));
  }
}

}  // namespace
}  // namespace castor
