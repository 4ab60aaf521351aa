// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/tensor_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chunk/base/json_value.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;

// Byte by byte what the reference reader takes: length, JSON, spaces up to a
// multiple of 8, tensors without a hole, the widest type first.
TEST(TensorFilesTest, WritesHeadersAsTheFormatHasThem) {
  const std::vector<ParamSpec> tensors = {
      {"half", {3}, DType::kBF16, true},
      {"w \"1\"", {2, 2}, DType::kF32, true},
      {"none", {0}, DType::kF32, true}};
  const Result<TensorFiles> plan =
      PlanTensorFiles("model", tensors, kDefaultMaxFile);
  ASSERT_THAT(plan, IsOk());
  ASSERT_EQ(plan->files.size(), 1u);
  const TensorFile& file = plan->files[0];
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
  EXPECT_EQ(plan->places[1].offset, file.head.size());
  EXPECT_EQ(plan->places[0].offset, file.head.size() + 16);
  EXPECT_EQ(plan->index, "");
}

TEST(TensorFilesTest, SharesTensorsOutAmongFilesWithAnIndex) {
  std::vector<ParamSpec> tensors;
  for (const char* name : {"a", "b", "c", "d"}) {
    tensors.push_back({name, {10}, DType::kF32, true});
  }
  tensors[2].shape = {100};  // more than a file
  const Result<TensorFiles> plan = PlanTensorFiles("model", tensors, Bytes(80));
  ASSERT_THAT(plan, IsOk());
  ASSERT_EQ(plan->files.size(), 3u);
  EXPECT_THAT(plan->files[0].tensors, ElementsAre(0, 1));
  EXPECT_THAT(plan->files[1].tensors, ElementsAre(2));
  EXPECT_EQ(plan->files[2].name, "model-00003-of-00003.safetensors");
  EXPECT_EQ(plan->index_name, "model.safetensors.index.json");
  const JsonValue index = ParseJson(plan->index).value();
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

}  // namespace
}  // namespace castor
