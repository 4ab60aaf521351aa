// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Training with a layout that was written to a file before: the weights are
// those of any other layout, and a layout of something else is refused.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/layout_file.h"
#include "chunk/param_spec.h"
#include "collectives/world/layout_digest.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using LayoutPtr = std::shared_ptr<const LayoutFile>;

// `model` in chunks of `size` elements, as it comes back from a file.
LayoutPtr FromFile(const ToyModel& model, int world, int64_t size) {
  const std::vector<Elements> of_groups(GroupParams(model.params).size(),
                                        Elements(size));
  const Result<ChunkLayout> packed =
      PackChunks(model.params, of_groups, {.world = world});
  EXPECT_THAT(packed, IsOk());
  const Result<std::string> text = WriteLayout(model.params, *packed);
  EXPECT_THAT(text, IsOk());
  Result<LayoutFile> read = ParseLayout(*text);
  EXPECT_THAT(read, IsOk());
  return std::make_shared<const LayoutFile>(*std::move(read));
}

class ZeroEngineLayoutTest : public ZeroEngineTest {
 protected:
  ZeroOptions With(LayoutPtr layout, ZeroOptions options) {
    options.layout = std::move(layout);
    options.chunk_size.reset();
    return options;
  }
};

TEST_F(ZeroEngineLayoutTest, EverySortOfSizesGivesTheSameBits) {
  ToyRun run;
  run.micro_batches = 2;
  int combination = 0;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MakeToyModel(2, 18, 2000, dtype);
    for (int world : {1, 2}) {
      const ToyResult want =
          TrainToyReference(model, run, world, 0.02, OptimizerOptions());
      ZeroOptions chunked = Tight(3, KiB(64), KiB(200));
      chunked.clip_norm = 0.02;
      ExpectEqual(TrainToy(model, run, world, chunked), want);
      // Everything fits a chunk; some parameters are oversize; nearly all are.
      for (const int64_t size : {2048, 768, 256}) {
        const LayoutPtr layout = FromFile(model, world, size);
        for (const ZeroOptions& options :
             {Roomy(3), Tight(3, KiB(128), KiB(200)), Roomy(1)}) {
          if (combination++ % TestStride() != 0) continue;
          SCOPED_TRACE(testing::Message()
                       << DTypeName(dtype) << " world " << world << " size "
                       << size << " stage " << options.stage << " device "
                       << options.device_budget);
          ZeroOptions with = With(layout, options);
          with.clip_norm = 0.02;
          const ToyResult got = TrainToy(model, run, world, with);
          ExpectEqual(got, want);
          ExpectWithinBudgets(got);
          EXPECT_EQ(internal::LayoutDigest(got.layout),
                    internal::LayoutDigest(layout->layout));
          EXPECT_EQ(got.stats.chunks,
                    static_cast<int64_t>(layout->layout.chunks().size()));
        }
      }
    }
  }
}

TEST_F(ZeroEngineLayoutTest, MixedAndFrozenGroupsHaveChunksEach) {
  ToyModel model = MakeToyModel(3, 24, 1500, DType::kF32);
  for (size_t p = 0; p < model.params.size(); ++p) {
    if (p % 4 == 1) model.params[p].dtype = DType::kBF16;
    if (p % 5 == 2) model.params[p].trainable = false;
  }
  model.params[7].shape = {5000};  // larger than every chunk
  ToyRun run;
  run.micro_batches = 2;
  const ToyResult want =
      TrainToyReference(model, run, 2, 0.05, OptimizerOptions());
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    ZeroOptions options =
        With(FromFile(model, 2, 768), Tight(stage, KiB(220), KiB(400)));
    options.clip_norm = 0.05;
    const ToyResult got = TrainToy(model, run, 2, options);
    ExpectEqual(got, want);
    ExpectWithinBudgets(got);
    EXPECT_GT(got.stats.chunk_sizes, 1);
  }
}

// What the trainer does not declare is planned for, size by size.
TEST_F(ZeroEngineLayoutTest, OversizeChunksTrainWithoutDeclaration) {
  const ToyModel model = MakeToyModel(9, 20, 1500, DType::kF32);
  ToyRun run;
  run.declares = false;
  run.tied = {0};
  const ToyResult want =
      TrainToyReference(model, run, 2, 0.05, OptimizerOptions());
  ZeroOptions options =
      With(FromFile(model, 2, 768), Tight(3, KiB(96), KiB(200)));
  options.clip_norm = 0.05;
  const ToyResult got = TrainToy(model, run, 2, options);
  ExpectEqual(got, want);
  ExpectWithinBudgets(got);
}

TEST_F(ZeroEngineLayoutTest, RefusesALayoutOfAnotherModel) {
  const ToyModel model = MakeToyModel(2, 10, 2000, DType::kF32);
  ToyModel other = model;
  other.params[4].shape = {77};
  const ToyResult got =
      TrainToy(other, ToyRun(), 2, With(FromFile(model, 2, 2048), Roomy(3)));
  EXPECT_THAT(got.status,
              StatusIs(ErrorCode::kInvalidArgument,
                       AllOf(HasSubstr("its parameter 4 is"), HasSubstr("[77]"),
                             HasSubstr("order in which they are registered"))));
}

TEST_F(ZeroEngineLayoutTest, RefusesALayoutForAnotherNumberOfRanks) {
  const ToyModel model = MakeToyModel(2, 10, 2000, DType::kF32);
  const ToyResult got =
      TrainToy(model, ToyRun(), 2, With(FromFile(model, 1, 2048), Roomy(3)));
  EXPECT_THAT(got.status, StatusIs(ErrorCode::kInvalidArgument,
                                   HasSubstr("for 1 ranks and there are 2")));
}

TEST_F(ZeroEngineLayoutTest, RanksMustHaveTheSameLayout) {
  const ToyModel model = MakeToyModel(2, 10, 2000, DType::kF32);
  ToyPart one = {model, ToyRun(), With(FromFile(model, 2, 2048), Roomy(3))};
  ToyPart two = one;
  two.options.layout = FromFile(model, 2, 512);
  ToyPart none = one;
  none.options.layout = nullptr;
  for (const ToyPart& other : {two, none}) {
    for (const ToyResult& result : TrainToyParts({one, other})) {
      EXPECT_THAT(result.status,
                  StatusIs(ErrorCode::kInvalidArgument,
                           HasSubstr("the ranks chose different options")));
    }
  }
  for (const ToyResult& result : TrainToyParts({one, one})) {
    EXPECT_THAT(result.status, IsOk());
  }
}

TEST_F(ZeroEngineLayoutTest, ALayoutAndAChunkSizeExcludeEachOther) {
  const ToyModel model = MakeToyModel(2, 10, 2000, DType::kF32);
  ZeroOptions options = With(FromFile(model, 1, 2048), Roomy(3));
  options.chunk_size = KiB(8);
  EXPECT_THAT(TrainToy(model, ToyRun(), 1, options).status,
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("exclude")));
}

}  // namespace
}  // namespace castor
