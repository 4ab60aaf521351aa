// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/class_pairs.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "chunk/class_runs.h"
#include "chunk/size_runs.h"
#include "gtest/gtest.h"
#include "tests/chunk/naive_packing.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

std::vector<int> AllNodes(const ClassRuns& runs) {
  std::vector<int> nodes(static_cast<size_t>(runs.thresholds()) + 1);
  std::iota(nodes.begin(), nodes.end(), 0);
  return nodes;
}

// What a pair wastes at every size it may have.
class Exhaustive {
 public:
  Exhaustive(const ClassRuns& runs, int i, int k, Elements quantum)
      : from_(runs.threshold(k)),
        quantum_(quantum),
        payload_(runs.Payload(i, k)) {
    SizeRuns selected;
    runs.Select(i, k, &selected);
    for (Elements size = from_; size <= runs.LargestSize(k); size += quantum) {
      chunks_.push_back(selected.Count(size).chunks);
    }
    for (size_t s = 0; s < chunks_.size(); ++s) {
      if (Waste(s) < Waste(best_)) best_ = s;
    }
  }

  Elements Size(size_t s) const {
    return from_ + quantum_ * static_cast<int64_t>(s);
  }
  Elements Waste(size_t s) const { return Size(s) * chunks_[s] - payload_; }
  Elements least() const { return Waste(best_); }
  Elements best_size() const { return Size(best_); }

  // That what the pair says is so, and that its intervals prove its bound.
  void Check(const ClassPair& pair) const {
    EXPECT_LE(pair.least, least());
    EXPECT_GE(pair.waste, least());
    const auto s = static_cast<size_t>((pair.chunk_size - from_) / quantum_);
    EXPECT_EQ(pair.chunks, chunks_.at(s));
    EXPECT_EQ(pair.waste, Waste(s));
    Elements next = from_;
    Elements bound = pair.intervals.at(0).from * pair.intervals[0].chunks;
    for (const CertificateInterval& interval : pair.intervals) {
      EXPECT_EQ(interval.from, next);
      EXPECT_GE(interval.to, interval.from);
      EXPECT_EQ(
          interval.chunks,
          chunks_.at(static_cast<size_t>((interval.to - from_) / quantum_)));
      bound = std::min(bound, interval.from * interval.chunks);
      next = interval.to + quantum_;
    }
    EXPECT_EQ(next, Size(chunks_.size()));
    EXPECT_EQ(pair.least, std::max(Elements(0), bound - payload_));
  }

 private:
  Elements from_;
  Elements quantum_;
  Elements payload_;
  std::vector<int64_t> chunks_;
  size_t best_ = 0;
};

TEST(ClassPairsTest, NothingIsKnownBeforeItIsAsked) {
  const ClassRuns runs(std::vector<Elements>{Elements(5)}, Elements(256), {});
  ClassPairs pairs(runs, {0, 1}, {});
  EXPECT_FALSE(pairs.pair(0, 1).known);
  EXPECT_EQ(pairs.steps(), 0);
  pairs.Bracket(0, 1);
  EXPECT_EQ(pairs.pair(0, 1).waste, Elements(123));
  EXPECT_EQ(pairs.pair(0, 1).least, Elements(123));
  const int64_t steps = pairs.steps();
  EXPECT_GT(steps, 0);
  pairs.Bracket(0, 1);
  EXPECT_EQ(pairs.steps(), steps);
}

TEST(ClassPairsTest, BoundsHoldAndGoalsAreReachedOnRandomLists) {
  std::mt19937_64 random(TestSeed(12));
  const int worlds[] = {1, 3, 8};
  for (int round = 0; round < 400; ++round) {
    const PackOptions options = {
        .world = worlds[random() % 3],
        .align = Elements(64 * (1 + static_cast<int64_t>(random() % 3)))};
    const Elements quantum = ChunkQuantum(options.world);
    const int64_t range = 1 + static_cast<int64_t>(random() % 200);
    const std::vector<Elements> sizes = RandomSizes(
        random, 80, quantum.count(), quantum.count() * (1 + range / 4));
    SCOPED_TRACE(testing::Message()
                 << "round " << round << " world " << options.world << " align "
                 << options.align << " range " << range);
    const ClassRuns runs(sizes, quantum * range, options);
    ClassPairs pairs(runs, AllNodes(runs), options);
    for (int k = 1; k < pairs.nodes(); ++k) {
      for (int i = 0; i < k; ++i) {
        const Exhaustive exhaustive(runs, i, k, quantum);
        pairs.Bracket(i, k);
        exhaustive.Check(pairs.pair(i, k));
        // A goal that may be below, at or above what can be had.
        const Elements goal(static_cast<int64_t>(
            random() %
            static_cast<uint64_t>(2 * exhaustive.least().count() + 2)));
        pairs.Refine(i, k, goal);
        exhaustive.Check(pairs.pair(i, k));
        EXPECT_GE(pairs.pair(i, k).least, std::min(goal, exhaustive.least()));
        if (goal > exhaustive.least()) {
          EXPECT_EQ(pairs.pair(i, k).waste, exhaustive.least());
          EXPECT_EQ(pairs.pair(i, k).chunk_size, exhaustive.best_size());
        }
        pairs.Refine(i, k, exhaustive.least() + Elements(1));
        exhaustive.Check(pairs.pair(i, k));
        EXPECT_EQ(pairs.pair(i, k).least, exhaustive.least());
        EXPECT_EQ(pairs.pair(i, k).waste, exhaustive.least());
        if (HasFailure()) return;
      }
    }
  }
}

TEST(ClassPairsTest, LeavesOutThresholdsThatMayNotBeChosen) {
  const std::vector<Elements> sizes = {Elements(100), Elements(200),
                                       Elements(300)};
  const ClassRuns runs(sizes, Elements(1024), {});
  ClassPairs pairs(runs, {0, 2, 3}, {});
  ASSERT_EQ(pairs.nodes(), 3);
  pairs.Bracket(0, 1);
  EXPECT_EQ(pairs.pair(0, 1).chunk_size, Elements(256));
  // 100 and 200, which do not fit together.
  EXPECT_EQ(pairs.pair(0, 1).waste, Elements(2 * 256 - 300));
  EXPECT_EQ(pairs.CountAt(1, 2, Elements(384)).chunks, 1);
}

}  // namespace
}  // namespace castor
