// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/derive/step_model.h"

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/trace/step_trace.h"
#include "tests/placement/step_text.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A chunk for each of `count` parameters; those in `frozen` come last.
ChunkLayout OneEach(int count, int frozen = 0) {
  std::vector<ParamSpec> params;
  for (int p = 0; p < count; ++p) {
    params.push_back(
        {std::to_string(p), {128}, DType::kF32, p < count - frozen});
  }
  const std::vector<Elements> size(frozen > 0 ? 2 : 1, Elements(128));
  return PackChunks(params, size, PackOptions()).value();
}

constexpr ParamId kTable(0), kFirst(1), kSecond(2);

// An embedding, two layers and a head tied to the embedding.
std::vector<ModelBlock> TiedModel() {
  std::vector<ModelBlock> blocks(4);
  blocks[0] = {
      "embedding", BlockKind::kEmbedding, {{{kTable}, {}}}, {{{}, {kTable}}}};
  blocks[1] = {
      "layer 0", BlockKind::kLayer, {{{kFirst}, {}}}, {{{kFirst}, {kFirst}}}};
  blocks[2] = {"layer 1",
               BlockKind::kLayer,
               {{{kSecond}, {}}},
               {{{kSecond}, {kSecond}}}};
  blocks[3] = {
      "head", BlockKind::kHead, {{{kTable}, {}}}, {{{kTable}, {kTable}}}};
  return blocks;
}

std::string Derived(const ChunkLayout& layout,
                    const std::vector<ModelBlock>& blocks,
                    const StepShape& shape) {
  const Result<StepTrace> step = DeriveStep(layout, blocks, shape);
  EXPECT_THAT(step, IsOk());
  if (!step.ok()) return "";
  EXPECT_THAT(ValidateStep(*step, layout.chunks().size()), IsOk());
  return TextOf(step->accesses);
}

const char kForward[] = "u0 e0 u1 e1 u2 e2 u0 e0 ";
// The table's gradient is open from the head's use of it to the embedding's.
const char kBackward[] = "u0 o0 e0 u2 o2 c2 e2 u1 o1 c1 e1 c0";

TEST(StepModelTest, GoesForwardAndBackwardThroughEveryMicroBatch) {
  const ChunkLayout layout = OneEach(3);
  const std::string sweep = std::string(kForward) + kBackward;
  EXPECT_EQ(Derived(layout, TiedModel(), {}), sweep);
  EXPECT_EQ(Derived(layout, TiedModel(), {.micro_batches = 2}),
            sweep + " " + sweep);
}

TEST(StepModelTest, RecomputesLayersBeforeTheirWayBack) {
  EXPECT_EQ(Derived(OneEach(3), TiedModel(), {.recompute = true}),
            std::string(kForward) +
                "u0 o0 e0 u2 e2 u2 o2 c2 e2 u1 e1 u1 o1 c1 e1 c0");
}

TEST(StepModelTest, LayerMajorOrderMakesAllMicroBatchesOfABlockInARow) {
  EXPECT_EQ(Derived(OneEach(3), TiedModel(),
                    {.micro_batches = 2, .order = BatchOrder::kLayerMajor}),
            "u0 e0 u0 e0 u1 e1 u1 e1 u2 e2 u2 e2 u0 e0 u0 e0 "
            "u0 o0 e0 u0 e0 u2 o2 e2 u2 c2 e2 u1 o1 e1 u1 c1 e1 c0");
}

TEST(StepModelTest, NothingGoesBackBelowWhatIsTrained) {
  // Parameter 2 is trained; the table and parameter 1 are frozen.
  const std::vector<ParamSpec> params = {{"t", {128}, DType::kF32, false},
                                         {"1", {128}, DType::kF32, false},
                                         {"2", {128}, DType::kF32, true}};
  const std::vector<Elements> sizes(2, Elements(128));
  const ChunkLayout layout = PackChunks(params, sizes, PackOptions()).value();
  // The head is frozen too, but passes gradients on.
  EXPECT_EQ(Derived(layout, TiedModel(), {}),
            "u0 e0 u1 e1 u2 e2 u0 e0 u0 e0 u2 o2 c2 e2");
  std::vector<ModelBlock> blocks = TiedModel();
  for (ModelBlock& block : blocks) block.activations.kept = Bytes(512);
  const Result<StepTrace> step = DeriveStep(layout, blocks, {});
  ASSERT_THAT(step, IsOk());
  // Of the first two blocks nothing is kept.
  EXPECT_THAT(
      LeasedBytes(*step),
      ElementsAre(Bytes(512), Bytes(512), Bytes(512), Bytes(512), Bytes(512),
                  Bytes(1024), Bytes(1024), Bytes(1024), Bytes(1024),
                  Bytes(1024), Bytes(512), Bytes(512), Bytes(512), Bytes(512)));
}

TEST(StepModelTest, HandsBackGradientsInReverse) {
  std::vector<ModelBlock> blocks(1);
  blocks[0].name = "all";
  blocks[0].forward = {{{ParamId(0), ParamId(1)}, {}}};
  blocks[0].backward = {
      {{ParamId(1), ParamId(0)}, {ParamId(0), ParamId(1), ParamId(2)}}};
  // Chunk 2 is frozen.
  EXPECT_EQ(Derived(OneEach(3, 1), blocks, {}),
            "u0 u1 e0 e1 u1 u0 o0 o1 c1 c0 e1 e0");
}

// One lease per sweep of three blocks of 4 bytes kept, 1 of them their input.
std::vector<ModelBlock> ThreeLayers() {
  std::vector<ModelBlock> blocks(3);
  for (int b = 0; b < 3; ++b) {
    ModelBlock& block = blocks[static_cast<size_t>(b)];
    block.kind = BlockKind::kLayer;
    block.forward = {{{ParamId(b)}, {}}};
    block.backward = {{{ParamId(b)}, {ParamId(b)}}};
    block.activations = {Bytes(4000), Bytes(1000), Bytes(10)};
    block.forward_ns = 100;
    block.backward_ns = 200;
  }
  return blocks;
}

// At each use, forward and then backward.
std::vector<int64_t> LeasedAtUses(const StepShape& shape) {
  const Result<StepTrace> step = DeriveStep(OneEach(3), ThreeLayers(), shape);
  EXPECT_THAT(step, IsOk());
  EXPECT_THAT(ValidateStep(*step, 3), IsOk());
  const std::vector<Bytes> leased = LeasedBytes(*step);
  std::vector<int64_t> at;
  for (size_t m = 0; m < leased.size(); ++m) {
    if (step->accesses[m].kind == AccessKind::kUse) {
      at.push_back(leased[m].count());
    }
  }
  return at;
}

TEST(StepModelTest, LeasesWhatTheBlocksKeepAndWorkWith) {
  EXPECT_THAT(LeasedAtUses({}),
              ElementsAre(4010, 8010, 12010, 12010, 8010, 4010));
  EXPECT_THAT(LeasedAtUses({.resident = Bytes(7)}),
              ElementsAre(4017, 8017, 12017, 12017, 8017, 4017));
  // Inputs of 1,000 each, and one layer whole at a time.
  EXPECT_THAT(
      LeasedAtUses({.recompute = true}),
      ElementsAre(4010, 5010, 6010, 6010, 6010, 5010, 5010, 4010, 4010));
  EXPECT_THAT(
      LeasedAtUses({.micro_batches = 2, .order = BatchOrder::kLayerMajor}),
      ElementsAre(4010, 8010, 12010, 16010, 20010, 24010, 24010, 20010, 16010,
                  12010, 8010, 4010));
}

TEST(StepModelTest, ComputesWhileItHolds) {
  for (const bool recompute : {false, true}) {
    const Result<StepTrace> step =
        DeriveStep(OneEach(3), ThreeLayers(),
                   {.micro_batches = 2, .recompute = recompute});
    ASSERT_THAT(step, IsOk());
    ASSERT_EQ(step->compute_ns.size(), step->accesses.size());
    int64_t sum = 0;
    for (size_t m = 0; m < step->compute_ns.size(); ++m) {
      sum += step->compute_ns[m];
      if (step->compute_ns[m] > 0) {
        EXPECT_NE(step->accesses[m].kind, AccessKind::kUseEnd) << m;
      }
    }
    EXPECT_EQ(sum, 2 * 3 * (recompute ? 400 : 300));
  }
  // Parts of a block add up to it.
  std::vector<ModelBlock> blocks = ThreeLayers();
  blocks.resize(1);
  blocks[0].forward.assign(3, {{ParamId(0)}, {}});
  const Result<StepTrace> step = DeriveStep(OneEach(3), blocks, {});
  ASSERT_THAT(step, IsOk());
  EXPECT_THAT(step->compute_ns, ElementsAre(33, 0, 33, 0, 34, 0, 0, 200, 0, 0));
}

TEST(StepModelTest, RefusesWhatItCannotDerive) {
  const ChunkLayout layout = OneEach(3);
  const auto refusal = [&](std::vector<ModelBlock> blocks, StepShape shape) {
    const Result<StepTrace> step = DeriveStep(layout, blocks, shape);
    EXPECT_EQ(step.status().code(), ErrorCode::kInvalidArgument);
    return std::string(step.status().message());
  };
  EXPECT_THAT(refusal(TiedModel(), {.micro_batches = 0}),
              HasSubstr("micro-batches, not 0"));
  std::vector<ModelBlock> blocks = TiedModel();
  blocks[1].backward[0].grads = {ParamId(3)};
  EXPECT_THAT(refusal(blocks, {}),
              HasSubstr("block \"layer 0\" names parameter 3, and the layout "
                        "has 3"));
  blocks = TiedModel();
  blocks[2].activations = {Bytes(1), Bytes(2), Bytes(0)};
  EXPECT_THAT(refusal(blocks, {}), HasSubstr("block \"layer 1\" has 1 bytes"));
  blocks = TiedModel();
  blocks[2].activations.kept = kMaxLeased;
  EXPECT_THAT(refusal(blocks, {}), HasSubstr("use a smaller batch"));
  blocks = TiedModel();
  blocks[0].backward_ns = kMaxStepNs;
  EXPECT_THAT(refusal(blocks, {}), HasSubstr("a trace holds up to"));
}

}  // namespace
}  // namespace castor
