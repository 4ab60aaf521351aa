// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/fetch_deadlines.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/plan.h"
#include "tests/support/test_seed.h"

namespace castor::internal {
namespace {

using testing::ElementsAre;

struct Instance {
  std::vector<DatedFetch> fetches;
  std::vector<int64_t> compute_ns;
};

// When every access is served, and last the end of the step, where fetches
// begin so: walks through the points of a step in order, before and after each
// access, and keeps for each leg when it is free.
std::vector<int64_t> ServedAt(const Instance& of,
                              const std::vector<int64_t>& begins) {
  std::vector<int64_t> served;
  std::vector<int64_t> over(of.fetches.size(), -1);
  int64_t free_at[kFetchLegs] = {};
  int64_t now = 0;
  const auto begin = [&](size_t j) {
    int64_t at = now;
    for (size_t leg = 0; leg < kFetchLegs; ++leg) {
      if (of.fetches[j].ns[leg] == 0) continue;
      at = std::max(at, free_at[leg]);
      at += of.fetches[j].ns[leg];
      free_at[leg] = at;
    }
    over[j] = at;
  };
  const auto begin_all = [&](int64_t moment, bool on_demand) {
    for (size_t j = 0; j < begins.size(); ++j) {
      if (begins[j] == moment && (of.fetches[j].use == moment) == on_demand) {
        begin(j);
      }
    }
  };
  begin_all(-1, false);
  for (size_t i = 0; i < of.compute_ns.size(); ++i) {
    const auto moment = static_cast<int64_t>(i);
    begin_all(moment, true);
    for (size_t j = 0; j < over.size(); ++j) {
      if (of.fetches[j].use == moment) {
        EXPECT_GE(over[j], 0);
        now = std::max(now, over[j]);
      }
    }
    served.push_back(now);
    begin_all(moment, false);
    now += of.compute_ns[i];
  }
  served.push_back(now);
  return served;
}

// After every access, how many have begun and are not used yet.
std::vector<int64_t> UnderWay(const Instance& of,
                              const std::vector<int64_t>& begins) {
  std::vector<int64_t> count(of.compute_ns.size(), 0);
  for (size_t j = 0; j < begins.size(); ++j) {
    for (int64_t i = std::max<int64_t>(begins[j], 0); i < of.fetches[j].use;
         ++i) {
      ++count[static_cast<size_t>(i)];
    }
  }
  return count;
}

std::vector<int64_t> Earliest(const Instance& of) {
  std::vector<int64_t> begins;
  for (const DatedFetch& fetch : of.fetches) begins.push_back(fetch.earliest);
  return begins;
}

// As fetches begin by depth.
std::vector<int64_t> ByDepth(const Instance& of, size_t depth) {
  std::vector<int64_t> begins;
  int64_t before = -1;
  for (size_t j = 0; j < of.fetches.size(); ++j) {
    const DatedFetch& fetch = of.fetches[j];
    int64_t begin = std::max(before, fetch.earliest);
    if (j >= depth && depth > 0) {
      begin = std::max(begin, of.fetches[j - depth].use);
    }
    if (depth == 0) begin = fetch.use;
    begins.push_back(before = std::min(begin, fetch.use));
  }
  return begins;
}

// `legs` of the way take time; all of it in small numbers, so that times meet.
Instance MakeInstance(std::mt19937_64& random, int moments, size_t legs) {
  const auto pick = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const int64_t slow = 1 + pick(12);
  Instance made;
  int64_t earliest = -1;
  for (int64_t i = 0; i < moments; ++i) {
    made.compute_ns.push_back(pick(3) == 0 ? 0 : pick(10));
    if (pick(3) == 0) continue;
    DatedFetch fetch;
    fetch.use = i;
    earliest = std::max(earliest, i - 1 - pick(8));
    if (pick(12) == 0) earliest = i;
    fetch.earliest = earliest;
    for (size_t leg = 0; leg < legs; ++leg) fetch.ns[leg] = pick(slow);
    made.fetches.push_back(fetch);
  }
  return made;
}

TEST(FetchDeadlinesTest, BeginsAtTheLastMomentThatIsInTime) {
  // Accesses at 0, 10, 20, 30; a fetch of 12 for the last one, which may begin
  // at once, begins with the second: it has until 18.
  const std::vector<int64_t> compute_ns = {10, 10, 10, 10};
  EXPECT_THAT(LatestBegins({{{3, -1, {12, 0, 0}}}}, compute_ns, 1),
              ElementsAre(1));
  // One before it takes the link until then.
  EXPECT_THAT(
      LatestBegins({{{2, -1, {5, 0, 0}}, {3, -1, {12, 0, 0}}}}, compute_ns, 1),
      ElementsAre(1, 1));
  EXPECT_THAT(
      LatestBegins({{{2, -1, {9, 0, 0}}, {3, -1, {12, 0, 0}}}}, compute_ns, 1),
      ElementsAre(0, 1));
  // Each way of its own leaves them alone.
  EXPECT_THAT(
      LatestBegins({{{2, -1, {9, 0, 0}}, {3, -1, {0, 9, 0}}}}, compute_ns, 1),
      ElementsAre(1, 2));
  // Given twice its time, it begins at once.
  EXPECT_THAT(LatestBegins({{{3, -1, {12, 0, 0}}}}, compute_ns, 2),
              ElementsAre(0));
  EXPECT_THAT(LatestBegins({{{3, -1, {12, 0, 0}}}}, compute_ns, 3),
              ElementsAre(-1));
  // For the first access there is no moment before.
  EXPECT_THAT(LatestBegins({{{0, -1, {1, 1, 1}}}}, compute_ns, 1),
              ElementsAre(-1));
  EXPECT_THAT(LatestBegins({{{0, 0, {1, 1, 1}}}}, compute_ns, 1),
              ElementsAre(0));
}

TEST(FetchDeadlinesTest, WhereTheLinkIsLateNothingIsBegunForAUseThatWaits) {
  // Every fetch takes three times what is computed: one follows the other, and
  // one at a time is enough.
  const std::vector<int64_t> compute_ns(6, 10);
  std::vector<DatedFetch> fetches;
  for (int64_t use = 0; use < 6; ++use) fetches.push_back({use, -1, {30}});
  EXPECT_THAT(LatestBegins(fetches, compute_ns, 1),
              ElementsAre(-1, 0, 1, 2, 3, 4));
}

TEST(FetchDeadlinesTest, StallsAsLittleAsAnyDepthAndHasNoMoreUnderWay) {
  std::mt19937_64 random(TestSeed(20261123));
  int stalled = 0;
  int fewer = 0;
  for (int round = 0; round < 4000; ++round) {
    const size_t legs = round % 2 == 0 ? 1 : kFetchLegs;
    const Instance made = MakeInstance(random, 1 + round % 30, legs);
    const std::vector<int64_t> begins =
        LatestBegins(made.fetches, made.compute_ns, 1);
    ASSERT_TRUE(std::is_sorted(begins.begin(), begins.end()));
    const std::vector<int64_t> served = ServedAt(made, begins);
    ASSERT_EQ(served, ServedAt(made, Earliest(made))) << round;
    for (const int64_t lead : {2, 5}) {
      const std::vector<int64_t> sooner =
          LatestBegins(made.fetches, made.compute_ns, lead);
      ASSERT_TRUE(std::is_sorted(sooner.begin(), sooner.end()));
      ASSERT_EQ(ServedAt(made, sooner), served) << round << ", lead " << lead;
      for (size_t j = 0; j < begins.size(); ++j) {
        ASSERT_LE(sooner[j], begins[j]);
        ASSERT_GE(sooner[j], made.fetches[j].earliest);
      }
    }
    int64_t computed = 0;
    for (const int64_t ns : made.compute_ns) computed += ns;
    stalled += served.back() > computed;
    const std::vector<int64_t> under_way = UnderWay(made, begins);
    bool enough = false;
    for (size_t depth = 0; depth <= made.fetches.size(); ++depth) {
      const std::vector<int64_t> by_depth = ByDepth(made, depth);
      const std::vector<int64_t> then = ServedAt(made, by_depth);
      ASSERT_GE(then.back(), served.back()) << round << ", depth " << depth;
      // Of several legs only depths that serve every access as soon.
      if (enough ||
          (legs == 1 ? then.back() != served.back() : then != served)) {
        continue;
      }
      enough = true;
      const std::vector<int64_t> others = UnderWay(made, by_depth);
      for (size_t i = 0; i < others.size(); ++i) {
        ASSERT_LE(under_way[i], others[i])
            << round << ", depth " << depth << ", moment " << i;
        fewer += under_way[i] < others[i];
      }
    }
  }
  EXPECT_GT(stalled, 1000);
  EXPECT_GT(fewer, 1000);
}

// Every schedule of a small instance, fetches in order.
class AllSchedules {
 public:
  AllSchedules(const Instance& of, const std::vector<int64_t>& begins)
      : of_(of), begins_(begins), served_(ServedAt(of, begins)) {}

  // Those that serve as early begin no fetch later, and none is faster.
  void Check(bool one_leg) {
    one_leg_ = one_leg;
    Next();
    EXPECT_GT(tried_, 0);
  }

 private:
  void Next() {
    const size_t j = chosen_.size();
    if (j == of_.fetches.size()) {
      Judge();
      return;
    }
    const DatedFetch& fetch = of_.fetches[j];
    int64_t begin = fetch.earliest;
    if (j > 0) begin = std::max(begin, chosen_.back());
    for (; begin <= fetch.use; ++begin) {
      chosen_.push_back(begin);
      Next();
      chosen_.pop_back();
    }
  }

  void Judge() {
    ++tried_;
    const std::vector<int64_t> served = ServedAt(of_, chosen_);
    for (size_t i = 0; i < served.size(); ++i) {
      ASSERT_GE(served[i], served_[i]);
    }
    if (one_leg_ ? served.back() != served_.back() : served != served_) return;
    for (size_t j = 0; j < chosen_.size(); ++j) {
      // With the step is just before its first access.
      if (of_.fetches[j].use == 0) continue;
      ASSERT_LE(chosen_[j], begins_[j]) << "fetch " << j;
    }
  }

  const Instance& of_;
  const std::vector<int64_t>& begins_;
  const std::vector<int64_t> served_;
  bool one_leg_ = false;
  std::vector<int64_t> chosen_;
  int64_t tried_ = 0;
};

TEST(FetchDeadlinesTest, NoOtherScheduleIsAsFastAndBeginsAnythingLater) {
  std::mt19937_64 random(TestSeed(20261124));
  for (int round = 0; round < 600; ++round) {
    const size_t legs = round % 2 == 0 ? 1 : kFetchLegs;
    Instance made = MakeInstance(random, 1 + round % 7, legs);
    // A fetch that takes no time is as good on demand as ahead.
    for (DatedFetch& fetch : made.fetches) ++fetch.ns[0];
    const std::vector<int64_t> begins =
        LatestBegins(made.fetches, made.compute_ns, 1);
    AllSchedules(made, begins).Check(legs == 1);
  }
}

}  // namespace
}  // namespace castor::internal
