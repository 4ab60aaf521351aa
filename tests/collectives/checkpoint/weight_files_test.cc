// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/weight_files.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/safetensors_format.h"
#include "collectives/checkpoint/checkpoint_reader.h"
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
  const Result<WeightIndex> index = ParseWeightIndex(
      R"({"metadata": {"total_size": 24, "weight_map": 3},
          "weight_map": {"b": "2.safetensors", "a": "1.safetensors",
                         "c": "1.safetensors"}})");
  ASSERT_THAT(index, IsOk());
  ASSERT_EQ(index->size(), 2u);
  EXPECT_THAT(index->at("1.safetensors"), ElementsAre("a", "c"));
  EXPECT_THAT(index->at("2.safetensors"), ElementsAre("b"));
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
  const auto reader =
      CheckpointReader::Find(dir_.path().string(), std::nullopt);
  ASSERT_THAT(reader, IsOk());
  EXPECT_TRUE(reader->weights_only());
  const CheckpointManifest& manifest = reader->manifest();
  ASSERT_EQ(manifest.params.size(), 3u);
  EXPECT_EQ(manifest.step, 0);
  EXPECT_EQ(manifest.params[1].name, "a");
  uint32_t second = 0;
  ASSERT_THAT(reader->Read(1, manifest.params[1].states[0], 1, 1, &second),
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

}  // namespace
}  // namespace castor
