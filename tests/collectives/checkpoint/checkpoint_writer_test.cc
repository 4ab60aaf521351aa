// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/checkpoint_writer.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_plan.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/tensor_digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kCount = 100;

// A trained parameter and a frozen one.
std::vector<ParamWithStates> Params() {
  return {
      {{"w", {kCount}, DType::kF32},
       {{StateKind::kParam, DType::kF32}, {StateKind::kExpAvg, DType::kF32}}},
      {{"s", {}, DType::kF32, /*trainable=*/false},
       {{StateKind::kParam, DType::kF32}}}};
}

class CheckpointWriterTest : public testing::Test {
 protected:
  CheckpointWriterTest() { std::iota(values_.begin(), values_.end(), 1.0F); }

  CheckpointWriter Planned() {
    return *CheckpointWriter::Plan(dir_.path().string(), 20, Params(), MiB(1));
  }
  Status Write(CheckpointWriter& writer, size_t param, StateKind state,
               int64_t begin, int64_t count) {
    return writer.Write(
        param, state, DType::kF32, begin, count,
        reinterpret_cast<const std::byte*>(values_.data() + begin));
  }

  TempDir dir_;
  std::array<float, kCount> values_ = {};
};

TEST_F(CheckpointWriterTest, TwoWritersMakeOneCheckpoint) {
  CheckpointWriter first = Planned();
  ASSERT_THAT(first.CreateFiles(), IsOk());
  CheckpointWriter second = Planned();
  ASSERT_THAT(Write(first, 0, StateKind::kParam, 0, 64), IsOk());
  ASSERT_THAT(Write(second, 0, StateKind::kParam, 64, 36), IsOk());
  ASSERT_THAT(Write(second, 0, StateKind::kExpAvg, 0, kCount), IsOk());
  ASSERT_THAT(Write(second, 1, StateKind::kParam, 0, 1), IsOk());
  ASSERT_THAT(first.Sync(), IsOk());
  ASSERT_THAT(second.Sync(), IsOk());
  for (size_t i = 0; i < first.digests().size(); ++i) {
    first.digests()[i] += second.digests()[i];
  }
  CheckpointManifest manifest;
  manifest.step = 20;
  manifest.optimizer = "adamw";
  first.Describe(std::array<int64_t, 2>{20, 0}, "here", &manifest);
  const Result<std::string> path = first.Commit(manifest, "here");
  ASSERT_THAT(path, IsOk());
  EXPECT_EQ(*path, first.path());
  EXPECT_EQ(*path, dir_.File("step-00000020"));

  const Result<CheckpointReader> reader = CheckpointReader::Open(*path);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ(*reader->ReadTrainer(), "here");
  const std::vector<SavedParam>& params = reader->manifest().params;
  ASSERT_THAT(params, SizeIs(2));
  EXPECT_EQ(params[0].steps, 20);
  EXPECT_FALSE(params[1].trainable);
  for (const SavedState& state : params[0].states) {
    std::array<float, kCount> read = {};
    ASSERT_THAT(reader->Read(0, state, 0, kCount, read.data()), IsOk());
    EXPECT_EQ(read, values_);
    EXPECT_EQ(state.digest,
              DigestOfElements(values_.data(), DType::kF32, 0, kCount));
  }
}

TEST_F(CheckpointWriterTest, WhatIsNotCommittedGoes) {
  {
    CheckpointWriter writer = Planned();
    ASSERT_THAT(writer.CreateFiles(), IsOk());
    ASSERT_THAT(Write(writer, 0, StateKind::kParam, 0, kCount), IsOk());
    EXPECT_TRUE(std::filesystem::exists(DraftPath(dir_.path().string(), 20)));
  }
  EXPECT_FALSE(std::filesystem::exists(DraftPath(dir_.path().string(), 20)));
  const auto found = ListCheckpoints(dir_.path().string());
  ASSERT_THAT(found, IsOk());
  EXPECT_THAT(*found, IsEmpty());
}

TEST_F(CheckpointWriterTest, WritesOnlyWhereFilesAreMade) {
  CheckpointWriter writer = Planned();
  EXPECT_THAT(Write(writer, 0, StateKind::kParam, 0, kCount),
              StatusIs(ErrorCode::kIoError));
}

}  // namespace
}  // namespace castor
