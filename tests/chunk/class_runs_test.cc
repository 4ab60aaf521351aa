// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/class_runs.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "chunk/size_runs.h"
#include "gtest/gtest.h"
#include "tests/chunk/naive_packing.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

std::vector<Elements> Sizes(const std::vector<int64_t>& counts) {
  std::vector<Elements> sizes;
  for (const int64_t count : counts) sizes.emplace_back(count);
  return sizes;
}

TEST(ClassRunsTest, SizesThatRoundUpAlikeShareAThreshold) {
  const ClassRuns runs(Sizes({100, 0, 128, 129, 600, 200}), Elements(512), {});
  ASSERT_EQ(runs.thresholds(), 2);
  EXPECT_EQ(runs.threshold(0), Elements(0));
  EXPECT_EQ(runs.threshold(1), Elements(128));
  EXPECT_EQ(runs.threshold(2), Elements(256));
  EXPECT_EQ(runs.LargestSize(1), Elements(128));
  EXPECT_EQ(runs.LargestSize(2), Elements(512));
  EXPECT_EQ(runs.Payload(0, 1), Elements(228));
  EXPECT_EQ(runs.Payload(1, 2), Elements(329));
  EXPECT_EQ(runs.oversize_chunks(), 1);
  EXPECT_EQ(runs.oversize_allocated(), Elements(640));
  EXPECT_EQ(runs.oversize_payload(), Elements(600));
}

TEST(ClassRunsTest, JoinsEqualSizesThatMeetWhereOthersAreLeftOut) {
  const ClassRuns runs(Sizes({300, 5, 300, 300, 600, 300}), Elements(512), {});
  SizeRuns selected;
  runs.Select(1, 2, &selected);
  ASSERT_EQ(selected.runs().size(), 3u);
  EXPECT_EQ(selected.runs()[0].count, 3);
  EXPECT_EQ(selected.runs()[0].stride, Elements(320));
  EXPECT_EQ(selected.runs()[1].count, 0);  // 600 closes the open chunk
  EXPECT_EQ(selected.runs()[2].count, 1);
  runs.Select(0, 1, &selected);
  ASSERT_EQ(selected.runs().size(), 1u);
  EXPECT_EQ(selected.runs()[0].size, Elements(5));
}

TEST(ClassRunsTest, AListWithoutAParameterWithinMaxHasNoThreshold) {
  const ClassRuns runs(Sizes({0, 600, 600, 700}), Elements(512), {});
  EXPECT_EQ(runs.thresholds(), 0);
  EXPECT_EQ(runs.oversize_chunks(), 3);
  EXPECT_EQ(runs.oversize_classes(), Elements(640 + 768));
  EXPECT_EQ(ClassRuns({}, Elements(512), {}).thresholds(), 0);
}

// For every pair of thresholds and every size it allows.
TEST(ClassRunsTest, CountsWhatANaivePackerDoesOnRandomLists) {
  std::mt19937_64 random(TestSeed(11));
  const int worlds[] = {1, 3};
  const int64_t aligns[] = {64, 192};
  for (int round = 0; round < 300; ++round) {
    const int world = worlds[random() % 2];
    const int64_t align = aligns[random() % 2];
    const int64_t quantum = 128 * world;
    const int64_t max = quantum * (1 + static_cast<int64_t>(random() % 16));
    const std::vector<Elements> sizes =
        RandomSizes(random, 60, quantum, 14 * quantum);
    SCOPED_TRACE(testing::Message() << "round " << round << " world " << world
                                    << " align " << align << " max " << max);
    const ClassRuns runs(sizes, Elements(max),
                         {.world = world, .align = Elements(align)});
    SizeRuns selected;
    for (int k = 1; k <= runs.thresholds(); ++k) {
      for (int i = 0; i < k; ++i) {
        runs.Select(i, k, &selected);
        for (int64_t size = runs.threshold(k).count();
             size <= runs.LargestSize(k).count(); size += quantum) {
          int64_t chunks = 0;
          int64_t fill = 0;
          int64_t payload = 0;
          for (const NaiveChunk& chunk :
               NaivePacking(NaiveClassMembers(sizes, runs.threshold(i).count(),
                                              size, k == runs.thresholds()),
                            size, world, align)) {
            if (chunk.oversize) continue;
            ++chunks;
            fill = std::max(fill, chunk.used);
            for (const size_t p : chunk.params) {
              payload += NaiveClassMembers(sizes, runs.threshold(i).count(),
                                           size, k == runs.thresholds())[p]
                             .count();
            }
          }
          const RunCount count = selected.Count(Elements(size));
          ASSERT_EQ(count.chunks, chunks) << i << " to " << k << " at " << size;
          ASSERT_EQ(count.fill.count(), fill);
          ASSERT_EQ(runs.Payload(i, k).count(), payload);
        }
      }
    }
  }
}

}  // namespace
}  // namespace castor
