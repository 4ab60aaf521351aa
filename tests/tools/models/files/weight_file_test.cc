// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/weight_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "tests/tools/models/model_files.h"
#include "tools/models/model_list.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Names(const ModelList& list) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : list.params) names.push_back(spec.name);
  return names;
}

TEST(WeightFileTest, KnowsItsFormatsByName) {
  EXPECT_TRUE(IsWeightFile("a.safetensors"));
  EXPECT_TRUE(IsWeightFile("a.safetensors.index.json"));
  EXPECT_FALSE(IsWeightFile("config.json"));
}

TEST(WeightFileTest, ListsAliasesThatTorchRecorded) {
  const TempFolder folder;
  const std::string json =
      R"({"__metadata__":{"format":"pt","lm_head.weight":"w","x":"w",)"
      R"("w":"w","gone":"none"},)"
      R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  folder.Write("m-1.safetensors", SafetensorsFile(json, 4));
  const std::string index = folder.Write(
      "m.safetensors.index.json", R"({"weight_map":{"w":"m-1.safetensors"}})");
  for (const std::string& path : {folder.At("m-1.safetensors"), index}) {
    const auto read = ReadWeightFile(path);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_THAT(Names(*read), ElementsAre("w"));
    ASSERT_EQ(read->dropped.size(), 2u);
    EXPECT_EQ(read->dropped[0].name, "lm_head.weight");
    EXPECT_EQ(read->dropped[0].reason, "tied to \"w\", counted once");
    EXPECT_EQ(read->dropped[1].name, "x");
  }
}

TEST(WeightFileTest, SaysThatPackedWeightsAreNoParameters) {
  const TempFolder folder;
  const auto read = ReadWeightFile(
      WriteSafetensors(folder, "gptq.safetensors",
                       {{"l.0.q_proj.qweight", {4, 8}, DType::kI32},
                        {"l.0.q_proj.scales", {1, 8}, DType::kF16},
                        {"l.0.norm.weight", {8}, DType::kF16}}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(Names(*read), ElementsAre("l.0.norm.weight"));
  EXPECT_THAT(read->notes,
              ElementsAre(HasSubstr("1 of 3 tensors hold packed weights")));
}

}  // namespace
}  // namespace castor
