// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/held_moments.h"

#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "gtest/gtest.h"
#include "placement/derive/step_model.h"
#include "placement/trace.h"

namespace castor {
namespace {

constexpr ParamId kA(0), kB(1), kC(2);

std::vector<ParamSpec> Params() {
  return {{"a", {64}, DType::kF32, true},
          {"b", {64}, DType::kF32, true},
          {"c", {128}, DType::kF32, true}};
}

// "01|2" is held parameters, then open gradients, by number.
std::string Text(const std::vector<HeldTogether>& moments) {
  std::string text;
  for (const HeldTogether& held : moments) {
    text += text.empty() ? "" : " ";
    for (const ParamId id : held.params) text += std::to_string(id.value());
    text += "|";
    for (const ParamId id : held.grads) text += std::to_string(id.value());
  }
  return text;
}

// A layer of a and b, and a head of c.
std::vector<ModelBlock> Blocks() {
  ModelBlock layer;
  layer.kind = BlockKind::kLayer;
  layer.forward = {{{kA}, {}}, {{kB}, {}}};
  layer.backward = {{{kB}, {kB}}, {{kA}, {kA}}};
  ModelBlock head;
  head.kind = BlockKind::kHead;
  head.forward = {{{kC}, {}}};
  head.backward = {{{kC}, {kC}}};
  return {layer, head};
}

TEST(HeldMomentsTest, OfBlocksAreTheirForwardAndBackwardUses) {
  StepShape shape;
  EXPECT_EQ(Text(HeldMomentsOf(Params(), Blocks(), shape)),
            "0| 1| 2| 2|2 1|1 0|0");
  shape.recompute = true;
  EXPECT_EQ(Text(HeldMomentsOf(Params(), Blocks(), shape)),
            "0| 1| 2| 2|2 0| 1| 1|1 0|0");
}

TEST(HeldMomentsTest, LayerMajorKeepsGradientsOverMicroBatches) {
  StepShape shape;
  shape.micro_batches = 3;
  shape.order = BatchOrder::kLayerMajor;
  EXPECT_EQ(Text(HeldMomentsOf(Params(), Blocks(), shape)),
            "0| 1| 2| 2|2 2|2 1|1 0|10 1|10 0|0");
}

TEST(HeldMomentsTest, FrozenParametersHaveNoGradientAndEndTheWayBack) {
  std::vector<ParamSpec> params = Params();
  params[0].trainable = params[1].trainable = false;
  EXPECT_EQ(Text(HeldMomentsOf(params, Blocks(), StepShape())), "0| 1| 2| 2|2");
}

TEST(HeldMomentsTest, OfATraceAreThoseOfItsFirstMicroBatch) {
  const std::vector<ParamSpec> params = Params();
  const Elements size[] = {Elements(128)};
  const ChunkLayout layout = *PackChunks(params, size, PackOptions());
  ASSERT_EQ(layout.chunks().size(), 2u);  // a and b, c
  Trace trace;
  const auto add = [&trace](AccessKind kind, int chunk) {
    trace.push_back({kind, ChunkId(chunk)});
  };
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    add(AccessKind::kUse, 0);
    add(AccessKind::kUse, 1);
    add(AccessKind::kUseEnd, 0);
    add(AccessKind::kGradOpen, 1);
    add(AccessKind::kGradClose, 1);
    add(AccessKind::kUseEnd, 1);
    add(AccessKind::kUse, 0);
    add(AccessKind::kGradOpen, 0);
    add(AccessKind::kUseEnd, 0);
    add(AccessKind::kGradClose, 0);
  }
  // A use is of the chunk's first parameter, a gradient of all of them. What
  // the second micro-batch uses before a gradient opens again is in it, too.
  EXPECT_EQ(Text(HeldMomentsOf(layout, trace)), "0| 02| 2|2 0| 0|01 0| 02|");
}

}  // namespace
}  // namespace castor
