// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/size_runs.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/chunk/naive_packing.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

constexpr int64_t kAlign = 64;

SizeRuns RunsOf(const std::vector<Elements>& sizes) {
  SizeRuns runs;
  for (const Elements size : sizes) {
    runs.Add({size, RoundUp(size, Elements(kAlign)), 1});
  }
  runs.FindRepeat();
  return runs;
}

std::vector<Elements> Repeated(const std::vector<int64_t>& head,
                               const std::vector<int64_t>& layer, int layers,
                               const std::vector<int64_t>& tail) {
  std::vector<Elements> sizes;
  for (const int64_t size : head) sizes.emplace_back(size);
  for (int i = 0; i < layers; ++i) {
    for (const int64_t size : layer) sizes.emplace_back(size);
  }
  for (const int64_t size : tail) sizes.emplace_back(size);
  return sizes;
}

void ExpectNaiveCounts(const std::vector<Elements>& sizes, Elements chunk) {
  const SizeRuns runs = RunsOf(sizes);
  int64_t fill = 0;
  const auto chunks = NaivePacking(sizes, chunk.count(), 1, kAlign);
  for (const NaiveChunk& one : chunks) fill = std::max(fill, one.used);
  const RunCount count = runs.Count(chunk);
  ASSERT_EQ(count.chunks, static_cast<int64_t>(chunks.size()));
  ASSERT_EQ(count.fill.count(), fill);
}

TEST(SizeRunsTest, JoinsEqualSizesInARow) {
  const SizeRuns runs = RunsOf(Repeated({7, 7}, {}, 0, {7, 9}));
  ASSERT_EQ(runs.runs().size(), 2u);
  EXPECT_EQ(runs.runs()[0].count, 3);
  EXPECT_EQ(runs.runs()[1].count, 1);
  EXPECT_EQ(runs.repeats(), 0u);
}

TEST(SizeRunsTest, FindsTheLayersOfAModel) {
  const SizeRuns runs =
      RunsOf(Repeated({9000}, {64, 400, 400, 100, 700}, 30, {64, 9000}));
  EXPECT_EQ(runs.repeats(), 30u);
  EXPECT_EQ(runs.repeat_period(), 4u);
  EXPECT_EQ(runs.repeat_begin(), 1u);
}

TEST(SizeRunsTest, NothingRepeatsInAListOfDistinctSizes) {
  EXPECT_EQ(RunsOf(Repeated({1, 2, 3, 4, 5, 6, 7}, {}, 0, {})).repeats(), 0u);
  EXPECT_EQ(RunsOf({}).repeats(), 0u);
  EXPECT_EQ(RunsOf({}).Count(Elements(128)).chunks, 0);
}

TEST(SizeRunsTest, LooksAtFewLayersOfMany) {
  const SizeRuns runs =
      RunsOf(Repeated({900}, {64, 400, 100, 700}, 1000, {64, 900}));
  ASSERT_GT(runs.runs().size(), 4000u);
  for (int64_t chunk = 1024; chunk < 8192; chunk += 128) {
    EXPECT_LT(runs.Count(Elements(chunk)).seen, 200) << chunk;
  }
}

TEST(SizeRunsTest, AnOversizeParameterInEveryLayerClosesTheChunk) {
  SizeRuns runs;
  for (int layer = 0; layer < 20; ++layer) {
    runs.Add({Elements(100), Elements(128), 1});
    runs.Add({});
    runs.Add({Elements(200), Elements(256), 2});
  }
  runs.FindRepeat();
  EXPECT_EQ(runs.repeats(), 20u);
  // 200 200 100 | 200 200 100 | ...
  EXPECT_EQ(runs.Count(Elements(1024)).chunks, 21);
}

TEST(SizeRunsTest, CountsWhatANaivePackerDoesOnRandomModels) {
  std::mt19937_64 random(TestSeed(12));
  const auto some = [&random](size_t most, int64_t largest) {
    std::vector<int64_t> sizes(random() % (most + 1));
    for (int64_t& size : sizes) {
      size =
          1 + static_cast<int64_t>(random() % static_cast<uint64_t>(largest));
    }
    return sizes;
  };
  for (int round = 0; round < 400; ++round) {
    const int64_t largest = 1 << (3 + random() % 9);
    const std::vector<Elements> sizes =
        Repeated(some(6, largest), some(8, largest),
                 static_cast<int>(random() % 60), some(6, largest));
    const int64_t least = RoundUp(Elements(largest), Elements(128)).count();
    for (int i = 0; i < 4; ++i) {
      const Elements chunk(least + 128 * static_cast<int64_t>(random() % 40));
      SCOPED_TRACE(testing::Message()
                   << "round " << round << " chunk " << chunk.count());
      ASSERT_NO_FATAL_FAILURE(ExpectNaiveCounts(sizes, chunk));
    }
  }
}

}  // namespace
}  // namespace castor
