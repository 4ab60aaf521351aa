// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/trace_layout.h"

#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/trace/trace_file.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Eq;
using testing::HasSubstr;

TraceFile ThreeChunks() {
  TraceFile trace;
  trace.chunks = {{0, KiB(4), KiB(4), true},
                  {0, KiB(4), KiB(4), false},
                  {1, KiB(6), KiB(6), true}};
  return trace;
}

TEST(TraceLayoutTest, HasAParameterForEachChunk) {
  const Result<ChunkLayout> layout =
      LayoutOfTrace(ThreeChunks(), DType::kBF16, 1);
  ASSERT_THAT(layout, IsOk());
  ASSERT_EQ(layout->chunks().size(), 3u);
  TraceFile typed = ThreeChunks();
  for (TraceChunk& chunk : typed.chunks) chunk.dtype = DType::kBF16;
  EXPECT_EQ(TraceChunks(*layout), typed.chunks);
  EXPECT_EQ(layout->place(ParamId(2)).chunk, ChunkId(2));
  EXPECT_EQ(layout->place(ParamId(2)).size, Elements(3072));
  // What five ranks cannot share is rounded up to 128 elements for each.
  const Result<ChunkLayout> five =
      LayoutOfTrace(ThreeChunks(), DType::kBF16, 5);
  ASSERT_THAT(five, IsOk());
  EXPECT_EQ(five->chunk(ChunkId(0)).size, Elements(2560));
}

TEST(TraceLayoutTest, TypesAreTheTracesOrThoseGivenOrAssumed) {
  const auto types = [](const Result<ChunkLayout>& layout) {
    std::vector<DType> all;
    for (const ChunkInfo& chunk : layout->chunks()) {
      all.push_back(layout->groups()[static_cast<size_t>(chunk.group)].dtype);
    }
    return all;
  };
  TraceFile trace = ThreeChunks();
  EXPECT_THAT(types(LayoutOfTrace(trace, DType::kF16, 1)),
              Each(Eq(DType::kF16)));
  EXPECT_THAT(types(LayoutOfTrace(trace, std::nullopt, 1)),
              Each(Eq(kAssumedDType)));
  for (TraceChunk& chunk : trace.chunks) chunk.dtype = DType::kF32;
  trace.chunks[2].dtype = DType::kBF16;
  const Result<ChunkLayout> mixed = LayoutOfTrace(trace, std::nullopt, 1);
  EXPECT_THAT(types(mixed),
              ElementsAre(DType::kF32, DType::kF32, DType::kBF16));
  EXPECT_EQ(TraceChunks(*mixed), trace.chunks);
  EXPECT_THAT(LayoutOfTrace(trace, DType::kF32, 1),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("the trace that chunk 2 is BF16")));
}

TEST(TraceLayoutTest, RefusesBytesThatAreNoElements) {
  TraceFile trace = ThreeChunks();
  trace.chunks[1].gathered = Bytes(4098);
  EXPECT_THAT(LayoutOfTrace(trace, DType::kF32, 1),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("chunk 1 has 4098 bytes")));
}

// Of two micro-batches one is declared, and a gradient is not open in between.
TEST(TraceLayoutTest, DeclaresWhatAMicroBatchHolds) {
  StepTrace step;
  for (int m = 0; m < 2; ++m) {
    for (int c = 0; c < 2; ++c) {
      step.accesses.push_back({AccessKind::kUse, ChunkId(c)});
      step.accesses.push_back({AccessKind::kUseEnd, ChunkId(c)});
    }
    for (int c = 2; c-- > 0;) {
      step.accesses.push_back({AccessKind::kGradOpen, ChunkId(c)});
      step.accesses.push_back({AccessKind::kGradClose, ChunkId(c)});
    }
  }
  step.leases = {{3, KiB(5)}, {5, KiB(2)}};
  const ChunkLayout layout =
      LayoutOfTrace(ThreeChunks(), std::nullopt, 1).value();
  const SealOptions declared = DeclaredBy(layout, step);
  EXPECT_EQ(declared.largest_lease, KiB(5));
  size_t opens = 0;
  for (const HeldTogether& held : declared.held) {
    EXPECT_LE(held.params.size() + held.grads.size(), 1u);
    opens += held.grads.size();
  }
  EXPECT_EQ(opens, 2u);
}

TEST(TraceLayoutTest, GivesComputeTimeByBytesOrInProportion) {
  TraceFile trace = ThreeChunks();
  trace.step.accesses = {{AccessKind::kUse, ChunkId(0)},
                         {AccessKind::kUseEnd, ChunkId(0)},
                         {AccessKind::kUse, ChunkId(2)},
                         {AccessKind::kUseEnd, ChunkId(2)}};
  EXPECT_THAT(WithComputeTime(trace, 1000).compute_ns,
              ElementsAre(400, 0, 600, 0));
  trace.step.compute_ns = {1, 1, 1, 0};
  const StepTrace scaled = WithComputeTime(trace, 1000);
  EXPECT_THAT(scaled.compute_ns, ElementsAre(333, 333, 334, 0));
  EXPECT_EQ(std::accumulate(scaled.compute_ns.begin(), scaled.compute_ns.end(),
                            int64_t{0}),
            1000);
}

TEST(TraceLayoutTest, NamesTheFirstChunkThatDiffers) {
  const std::vector<TraceChunk> chunks = ThreeChunks().chunks;
  std::vector<TraceChunk> others = chunks;
  // Other ranks have other shards of the same chunks.
  others[0].shard = KiB(2);
  EXPECT_THAT(CheckSameChunks(chunks, others), IsOk());
  others[1].trainable = true;
  EXPECT_THAT(CheckSameChunks(chunks, others),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("chunk 1 of it is 4096 bytes, trainable in "
                                 "place of 4096 bytes, frozen")));
  others = chunks;
  others[2].dtype = DType::kF32;
  EXPECT_THAT(CheckSameChunks(chunks, others), IsOk());
  std::vector<TraceChunk> typed = chunks;
  typed[2].dtype = DType::kBF16;
  EXPECT_THAT(CheckSameChunks(typed, others),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("chunk 2 of it is 6144 bytes of F32")));
  others.pop_back();
  EXPECT_THAT(CheckSameChunks(chunks, others),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("it has 2 chunks in place of 3")));
}

TEST(TraceLayoutTest, EvaluatesWhatTheFirstForwardSweepUses) {
  StepTrace step;
  step.accesses = {
      {AccessKind::kUse, ChunkId(0)},       {AccessKind::kUseEnd, ChunkId(0)},
      {AccessKind::kUse, ChunkId(2)},       {AccessKind::kGradOpen, ChunkId(2)},
      {AccessKind::kGradClose, ChunkId(2)}, {AccessKind::kUseEnd, ChunkId(2)}};
  step.compute_ns = {5, 0, 6, 12, 0, 0};
  EXPECT_EQ(WithEvaluations(step, 0), step);
  const StepTrace twice = WithEvaluations(step, 2);
  EXPECT_EQ(twice.accesses, step.accesses);
  ASSERT_EQ(twice.evaluations.size(), 2u);
  for (const EvaluationPass& pass : twice.evaluations) {
    EXPECT_EQ(pass.moment, 0);
    ASSERT_EQ(pass.accesses.size(), 4u);
    EXPECT_EQ(pass.accesses[3], (Access{AccessKind::kUseEnd, ChunkId(2)}));
    EXPECT_THAT(pass.compute_ns, ElementsAre(5, 0, 6, 0));
  }
  EXPECT_THAT(ValidateStep(twice, 3), IsOk());
}

}  // namespace
}  // namespace castor
