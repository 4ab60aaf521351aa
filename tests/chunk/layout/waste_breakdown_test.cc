// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout/waste_breakdown.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "gtest/gtest.h"
#include "tests/chunk/naive_packing.h"
#include "tests/chunk/search_input.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

TEST(WasteBreakdownTest, NamesTheCauseOfEveryElement) {
  // Q = 128, C = 512. Chunk 0: 100 and 300 from 128 to 428. Chunk 1: 700, an
  // oversize chunk of 768. Chunk 2: 1. Chunk 3, frozen: 500.
  const std::vector<ParamSpec> params = {
      {"a", {100}, DType::kBF16, true}, {"b", {300}, DType::kBF16, true},
      {"c", {700}, DType::kBF16, true}, {"none", {0}, DType::kBF16, true},
      {"d", {1}, DType::kBF16, true},   {"e", {500}, DType::kBF16, false}};
  const std::vector<Elements> sizes = {Elements(512), Elements(512)};
  const ChunkLayout layout = PackChunks(params, sizes, {}).value();
  const WasteBreakdown breakdown = BreakDownWaste(layout);
  ASSERT_EQ(breakdown.chunks.size(), 4u);
  EXPECT_EQ(breakdown.chunks[0].chunk, ChunkId(0));
  EXPECT_EQ(breakdown.chunks[0].alignment, Elements(28));
  EXPECT_EQ(breakdown.chunks[0].tail, Elements(512 - 428));
  EXPECT_EQ(breakdown.chunks[0].rounding, Elements(0));
  EXPECT_EQ(breakdown.chunks[1].chunk, ChunkId(1));
  EXPECT_EQ(breakdown.chunks[1].alignment, Elements(0));
  EXPECT_EQ(breakdown.chunks[1].tail, Elements(0));
  EXPECT_EQ(breakdown.chunks[1].rounding, Elements(68));
  EXPECT_EQ(breakdown.chunks[2].tail, Elements(511));
  EXPECT_EQ(breakdown.chunks[3].total(), Elements(12));
  ASSERT_EQ(breakdown.groups.size(), 2u);
  EXPECT_EQ(breakdown.groups[0].alignment, Elements(28));
  EXPECT_EQ(breakdown.groups[0].tail, Elements(512 - 428 + 511));
  EXPECT_EQ(breakdown.groups[0].rounding, Elements(68));
  EXPECT_EQ(breakdown.groups[1].tail, Elements(12));
}

TEST(WasteBreakdownTest, NothingWastesNothing) {
  const ChunkLayout empty(1, Elements(64), {}, {}, {});
  EXPECT_TRUE(BreakDownWaste(empty).chunks.empty());
  EXPECT_TRUE(BreakDownWaste(empty).groups.empty());

  const std::vector<ParamSpec> none = {{"none", {0}, DType::kF32, true}};
  const std::vector<Elements> sizes = {Elements(128)};
  const WasteBreakdown breakdown =
      BreakDownWaste(PackChunks(none, sizes, {}).value());
  EXPECT_TRUE(breakdown.chunks.empty());
  ASSERT_EQ(breakdown.groups.size(), 1u);
  EXPECT_EQ(breakdown.groups[0].total(), Elements(0));
}

// All parameters, the largest too, which Gemini leaves out of it (defect D10).
TEST(WasteBreakdownTest, EqualsASecondPackerOnRandomLists) {
  std::mt19937_64 random(TestSeed(17));
  for (int round = 0; round < 500; ++round) {
    const PackOptions options = {
        .world = round % 2 == 0 ? 1 : 3,
        .align = Elements(64 * (1 + static_cast<int64_t>(random() % 3)))};
    const int64_t quantum = ChunkQuantum(options.world).count();
    const std::vector<Elements> sizes =
        RandomSizes(random, 40, quantum, 12 * quantum);
    if (sizes.empty()) continue;
    const Elements chunk_size(quantum *
                              (1 + static_cast<int64_t>(random() % 10)));
    SCOPED_TRACE(testing::Message() << "round " << round);
    const WasteBreakdown breakdown = BreakDownWaste(
        PackChunks(ParamsOf(sizes, DType::kF32), {&chunk_size, 1}, options)
            .value());
    const std::vector<NaiveChunk> chunks = NaivePacking(
        sizes, chunk_size.count(), options.world, options.align.count());
    ASSERT_EQ(breakdown.chunks.size(), chunks.size());
    Elements total;
    for (size_t c = 0; c < chunks.size(); ++c) {
      const NaiveChunk& chunk = chunks[c];
      int64_t gaps = 0;
      int64_t end = 0;
      for (size_t i = 0; i < chunk.params.size(); ++i) {
        gaps += chunk.offsets[i] - end;
        end = chunk.offsets[i] + sizes[chunk.params[i]].count();
      }
      const int64_t rest = chunk.size - end;
      EXPECT_EQ(breakdown.chunks[c].alignment.count(), gaps);
      EXPECT_EQ(breakdown.chunks[c].tail.count(), chunk.oversize ? 0 : rest);
      EXPECT_EQ(breakdown.chunks[c].rounding.count(),
                chunk.oversize ? rest : 0);
      total += breakdown.chunks[c].total();
    }
    EXPECT_EQ(breakdown.groups[0].total(), total);
  }
}

}  // namespace
}  // namespace castor
