// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/joint_flow.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "placement/exact/interval_flow.h"
#include "placement/exact/interval_problem.h"
#include "placement/exact/joint_prices.h"

namespace castor {
namespace {

using Wide = __int128;

// Intervals in all flows that are solved, and flows that are solved at least.
// Where intervals wrap, one answer takes several flows.
constexpr int64_t kMostIntervals = 40'000;
constexpr int64_t kFlowsOfALoop = 8;
constexpr int kFewestFlows = 10;
// How often prices are moved when a split is looked at once more.
constexpr int64_t kMostRounds = 100;
constexpr int64_t kLeastRounds = 10;
constexpr int64_t kRoundsTimesSize = 300'000;
// Of both kinds at one split.
constexpr int kTurns = 4;
constexpr int kMostRefined = 6;

// One kind of copy at one split, some gaps of it, each worth so much.
struct Level {
  IntervalProblem intervals;
  std::vector<size_t> gap_of;  // by interval

  void Add(int32_t begin, int32_t end, int64_t gain, size_t gap) {
    if (gain <= 0) return;
    intervals.intervals.push_back({begin, end, gain});
    gap_of.push_back(gap);
  }
};

struct Kept {
  std::vector<bool> of_gap;
  std::vector<int64_t> price;
  int64_t bound = 0;
};

class JointSearch {
 public:
  explicit JointSearch(const JointProblem& problem)
      : problem_(problem),
        chains_(ChainsOf(problem)),
        most_(LargestSplit(problem)),
        tried_(static_cast<size_t>(most_) + 1, false),
        gains_at_(tried_.size(), 0) {
    best_.kept.assign(problem.gaps.size(), false);
    best_.shard_kept = best_.kept;
  }

  JointSolution Run() {
    // Of shards alone there is no end to the price where they have no place.
    Try(0);
    if (most_ > 0) Try(most_);
    while (MayGoOn() && !Proved()) {
      const int64_t split = Highest();
      if (tried_[static_cast<size_t>(split)]) break;
      Try(split);
    }
    // Better ones near the best, ever nearer.
    for (int64_t width = (most_ + 3) / 4; width > 0; width /= 2) {
      for (const int64_t split : {best_.split - width, best_.split + width}) {
        if (split > 0 && split < most_ && MayGoOn() && !Proved() &&
            !tried_[static_cast<size_t>(split)]) {
          Try(split);
        }
      }
    }
    for (int i = 0; i < kMostRefined && !Proved() && Refine(Highest());) ++i;
    best_.bound = BoundOf(problem_, lines_);
    for (size_t i = 0; i < lines_.size() && best_.proves < 0; ++i) {
      if (BoundOf(problem_, {lines_[i]}) != best_.bound) continue;
      best_.proves = static_cast<int32_t>(i);
    }
    return std::move(best_);
  }

 private:
  bool MayGoOn() const {
    return flows_ < kFewestFlows || intervals_ < kMostIntervals;
  }

  Kept Solve(const Level& level) {
    bool wraps = false;
    for (const KeepInterval& interval : level.intervals.intervals) {
      wraps |= interval.wraps();
    }
    intervals_ +=
        static_cast<int64_t>(level.gap_of.size()) * (wraps ? kFlowsOfALoop : 1);
    ++flows_;
    const IntervalSolution solution = SolveIntervals(level.intervals);
    Kept kept;
    kept.of_gap.assign(problem_.gaps.size(), false);
    for (size_t j = 0; j < level.gap_of.size(); ++j) {
      kept.of_gap[level.gap_of[j]] = solution.kept[j];
    }
    kept.price = solution.price;
    kept.bound = solution.bound;
    return kept;
  }

  // Gathered copies, where a gap is worth `less` less.
  Kept Whole(int64_t split, const std::vector<int64_t>& less) {
    Level level;
    level.intervals.capacity = problem_.capacity;
    for (int64_t& slots : level.intervals.capacity) slots -= split;
    for (size_t j = 0; j < problem_.gaps.size(); ++j) {
      const JointGap& gap = problem_.gaps[j];
      level.Add(gap.idle_since, gap.need, gap.gain - less[j], j);
    }
    return Solve(level);
  }

  // Shards' copies by themselves, from the use before on.
  Kept Shards(int64_t split, const std::vector<int64_t>& less) {
    Level level;
    level.intervals.capacity.assign(problem_.capacity.size(),
                                    problem_.parts * split);
    for (size_t j = 0; j < problem_.gaps.size(); ++j) {
      const JointGap& gap = problem_.gaps[j];
      level.Add(gap.last_need, gap.need, gap.shard_gain - less[j], j);
    }
    return Solve(level);
  }

  // Those that go best with these gathered copies; what both gain together is
  // remembered if it is most.
  std::vector<bool> Complete(int64_t split, const Kept& whole) {
    Level level;
    level.intervals.capacity.assign(problem_.capacity.size(),
                                    problem_.parts * split);
    int64_t gain = 0;
    for (size_t j = 0; j < problem_.gaps.size(); ++j) {
      const JointGap& gap = problem_.gaps[j];
      if (whole.of_gap[j]) {
        gain += gap.gain;
      } else if (split > 0) {
        level.Add(ShardSince(problem_, whole.of_gap, j), gap.need,
                  gap.shard_gain, j);
      }
    }
    std::vector<bool> shards(problem_.gaps.size(), false);
    if (!level.gap_of.empty()) {
      const Kept beside = Solve(level);
      shards = beside.of_gap;
      AddProof(whole, beside);
    }
    for (size_t j = 0; j < shards.size(); ++j) {
      if (shards[j]) gain += problem_.gaps[j].shard_gain;
    }
    int64_t& of_split = gains_at_[static_cast<size_t>(split)];
    of_split = std::max(of_split, gain);
    if (gain > best_.gain) {
      best_.split = split;
      best_.gain = gain;
      best_.kept = whole.of_gap;
      best_.shard_kept = shards;
    }
    return shards;
  }

  // What is left of a gap's gain when its copy has paid.
  std::vector<int64_t> Left(const std::vector<int64_t>& price,
                            bool of_shard) const {
    std::vector<Wide> before(price.size() + 1);
    for (size_t t = 0; t < price.size(); ++t) {
      before[t + 1] = before[t] + price[t];
    }
    std::vector<int64_t> left;
    for (const JointGap& gap : problem_.gaps) {
      const int32_t begin = of_shard ? gap.last_need : gap.idle_since;
      Wide pays = before[static_cast<size_t>(gap.need)] -
                  before[static_cast<size_t>(begin)];
      if (begin >= gap.need) pays += before.back();
      const Wide rest = (of_shard ? gap.shard_gain : gap.gain) - pays;
      const auto worth = static_cast<int64_t>(std::max<Wide>(rest, 0));
      left.push_back(worth - worth % problem_.unit);
    }
    return left;
  }

  void AddProof(const Kept& whole, const Kept& shards) {
    best_.proof.push_back({whole.price, shards.price});
    lines_.push_back(LineOf(problem_, best_.proof.back()));
  }

  // From prices of the one kind to those of the other, and what they prove.
  Kept Descend(int64_t split, const Kept& whole) {
    std::vector<int64_t> taken = Left(whole.price, false);
    for (size_t j = 0; j < taken.size(); ++j) {
      taken[j] = std::min(taken[j], problem_.gaps[j].shard_gain);
    }
    Kept shards = Shards(split, taken);
    AddProof(whole, shards);
    return shards;
  }

  // Less than any difference of gains, and less for some chunks than others.
  std::vector<int64_t> ByChunk() const {
    int64_t least = kMaxTotalGain;
    for (const JointGap& gap : problem_.gaps) {
      least = std::min(least, gap.gain);
    }
    const auto chains = static_cast<int64_t>(chains_.size());
    std::vector<int64_t> less(problem_.gaps.size(), 0);
    for (size_t c = 0; c < chains_.size(); ++c) {
      const int64_t share = least / 4 / chains * static_cast<int64_t>(c);
      for (const size_t gap : chains_[c]) {
        less[gap] = share - share % problem_.unit;
      }
    }
    return less;
  }

  void Try(int64_t split) {
    tried_[static_cast<size_t>(split)] = true;
    const std::vector<int64_t> nothing(problem_.gaps.size(), 0);
    const Kept alone = Whole(split, nothing);
    std::vector<bool> shards = Complete(split, alone);
    const Kept beside = Descend(split, alone);
    if (split == 0 || Proved(split)) return;
    // From the other end: as if every shard were here anyway.
    std::vector<int64_t> given;
    for (const JointGap& gap : problem_.gaps) given.push_back(gap.shard_gain);
    const Kept gathers = Whole(split, given);
    Complete(split, gathers);
    Descend(split, gathers);
    if (Proved(split)) return;
    // The same chunks over all their gaps, so that the others keep their
    // places.
    Complete(split, Whole(split, ByChunk()));
    if (Proved(split)) return;
    // As the last shards leave it, and in turns.
    shards = Complete(split, Whole(split, Left(beside.price, true)));
    for (int turn = 0; turn < kTurns && !Proved(split); ++turn) {
      const int64_t before = gains_at_[static_cast<size_t>(split)];
      for (size_t j = 0; j < given.size(); ++j) {
        given[j] = shards[j] ? problem_.gaps[j].shard_gain : 0;
      }
      shards = Complete(split, Whole(split, given));
      if (gains_at_[static_cast<size_t>(split)] == before) break;
    }
  }

  bool Proved(int64_t split) const {
    return BoundAt(problem_, lines_, split) <=
           std::max(best_.gain, gains_at_[static_cast<size_t>(split)]);
  }

  bool Proved() const { return BoundOf(problem_, lines_) <= best_.gain; }

  int Rounds() const {
    const auto size =
        static_cast<int64_t>(problem_.gaps.size() + problem_.capacity.size());
    return static_cast<int>(
        std::clamp(kRoundsTimesSize / (size + 1), kLeastRounds, kMostRounds));
  }

  // Better prices for the split, and what chunks would choose at them. False:
  // neither is better.
  bool Refine(int64_t split) {
    const int64_t before = BoundAt(problem_, lines_, split);
    const int64_t gained = best_.gain;
    size_t lowest = 0;
    for (size_t i = 1; i < lines_.size(); ++i) {
      if (lines_[i].At(split) < lines_[lowest].At(split)) lowest = i;
    }
    JointPrices prices = internal::BetterPrices(
        problem_, chains_, split, gains_at_[static_cast<size_t>(split)],
        best_.proof[lowest], Rounds());
    Complete(split, Whole(split, Left(prices.shard, true)));
    best_.proof.push_back(std::move(prices));
    lines_.push_back(LineOf(problem_, best_.proof.back()));
    return BoundAt(problem_, lines_, split) < before || best_.gain > gained;
  }

  // The split, the smallest of several, at which the lines allow most.
  int64_t Highest() const {
    int64_t highest = 0;
    Wide allowed = -1;
    for (int64_t split = 0; split <= most_; ++split) {
      Wide lowest = lines_.front().At(split);
      for (const JointLine& line : lines_) {
        lowest = std::min(lowest, line.At(split));
      }
      if (lowest > allowed) {
        allowed = lowest;
        highest = split;
      }
    }
    return highest;
  }

  const JointProblem& problem_;
  const std::vector<std::vector<size_t>> chains_;
  const int64_t most_;
  std::vector<bool> tried_;        // by split
  std::vector<int64_t> gains_at_;  // by split, the most found
  std::vector<JointLine> lines_;   // of best_.proof
  int flows_ = 0;
  int64_t intervals_ = 0;
  JointSolution best_;
};

}  // namespace

JointSolution SolveJoint(const JointProblem& problem) {
  CASTOR_CHECK(CheckJointProblem(problem).ok());
  return JointSearch(problem).Run();
}

}  // namespace castor
