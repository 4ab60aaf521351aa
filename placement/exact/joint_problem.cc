// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/joint_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "chunk/base/check.h"

namespace castor {
namespace {

// Prices are as large as gains and capacities as large as anything.
using Wide = __int128;

// Beyond all gains a bound proves nothing, however far.
constexpr Wide kFar = Wide{kMaxTotalGain} << 8;

// What is held at each moment by intervals that are kept.
class Held {
 public:
  explicit Held(size_t moments) : steps_(moments + 1, 0) {}

  void Add(int32_t begin, int32_t end) {
    ++steps_[static_cast<size_t>(begin)];
    --steps_[static_cast<size_t>(end)];
    if (begin >= end) ++steps_[0];
  }
  std::vector<int64_t> ByMoment() const {
    std::vector<int64_t> held(steps_.size() - 1);
    std::partial_sum(steps_.begin(), steps_.end() - 1, held.begin());
    return held;
  }

 private:
  std::vector<int64_t> steps_;  // more than just before
};

// Prices of intervals of moments.
class Paid {
 public:
  explicit Paid(const std::vector<int64_t>& price) : before_(price.size() + 1) {
    for (size_t t = 0; t < price.size(); ++t) {
      before_[t + 1] = before_[t] + price[t];
    }
  }

  Wide Of(int32_t begin, int32_t end) const {
    const Wide pays =
        before_[static_cast<size_t>(end)] - before_[static_cast<size_t>(begin)];
    return begin >= end ? pays + before_.back() : pays;
  }
  Wide all() const { return before_.back(); }

 private:
  std::vector<Wide> before_;  // prices of moments before
};

// What a chunk gains at most beyond what it pays, gap by gap.
class ChainValue {
 public:
  // `at_hand`: whether the shard is where it can be kept from, at the start.
  explicit ChainValue(bool at_hand)
      : at_hand_(at_hand ? 0 : kNever), away_(at_hand ? kNever : 0) {}

  // `whole` and `part`: what is left of each copy's gain, `place`: what a place
  // for the shard costs over the gap.
  void Pass(Wide whole, Wide part, Wide place) {
    const Wide at_hand = std::max<Wide>(
        {at_hand_ + whole - place, at_hand_ + part, at_hand_, away_});
    away_ = std::max(at_hand_, away_) + whole;
    at_hand_ = at_hand;
  }
  Wide at_hand() const { return at_hand_; }
  Wide best() const { return std::max(at_hand_, away_); }

 private:
  static constexpr Wide kNever = -(Wide{1} << 110);

  Wide at_hand_;
  Wide away_;
};

Wide BestOf(const JointProblem& problem, const std::vector<size_t>& chain,
            const Paid& slot, const Paid& shard) {
  ChainValue gathered(true);
  ChainValue kept(false);
  for (const size_t j : chain) {
    const JointGap& gap = problem.gaps[j];
    const Wide place = shard.Of(gap.last_need, gap.need);
    const Wide whole = gap.gain - slot.Of(gap.idle_since, gap.need);
    const Wide part = gap.shard_gain - place;
    gathered.Pass(whole, part, place);
    kept.Pass(whole, part, place);
  }
  if (problem.gaps[chain.front()].before < 0) return gathered.best();
  // Round and round, the shard is at hand only where it was left so.
  return std::max(gathered.at_hand(), kept.best());
}

struct Totals {
  int64_t gain = 0;
  int64_t unit = 0;  // what all gains are multiples of
};

Totals TotalsOf(const JointProblem& problem) {
  Totals totals;
  for (const JointGap& gap : problem.gaps) {
    totals.gain += gap.gain;
    totals.unit = std::gcd(totals.unit, std::gcd(gap.gain, gap.shard_gain));
  }
  return totals;
}

int64_t Rounded(const Totals& totals, Wide bound) {
  if (bound >= totals.gain) return totals.gain;
  const auto whole = static_cast<int64_t>(bound);
  return whole - whole % totals.unit;
}

Wide Lowest(const std::vector<JointLine>& lines, int64_t split) {
  Wide lowest = kFar;
  for (const JointLine& line : lines) lowest = std::min(lowest, line.At(split));
  return lowest;
}

}  // namespace

std::vector<std::vector<size_t>> ChainsOf(const JointProblem& problem) {
  std::vector<size_t> after(problem.gaps.size(), problem.gaps.size());
  std::vector<size_t> firsts;
  for (size_t j = 0; j < problem.gaps.size(); ++j) {
    const int32_t before = problem.gaps[j].before;
    if (before < 0) {
      firsts.push_back(j);
    } else {
      after[static_cast<size_t>(before)] = j;
    }
  }
  std::vector<std::vector<size_t>> chains;
  std::vector<bool> seen(problem.gaps.size(), false);
  const auto follow = [&](size_t first) {
    std::vector<size_t>& chain = chains.emplace_back();
    for (size_t j = first; j < after.size() && !seen[j]; j = after[j]) {
      seen[j] = true;
      chain.push_back(j);
    }
  };
  for (const size_t first : firsts) follow(first);
  for (size_t j = 0; j < seen.size(); ++j) {
    if (!seen[j]) follow(j);
  }
  return chains;
}

int64_t LargestSplit(const JointProblem& problem) {
  if (problem.capacity.empty() || problem.parts == 0) return 0;
  int64_t shards = 0;
  for (const JointGap& gap : problem.gaps) shards += gap.shard_gain > 0;
  return std::min(
      (shards + problem.parts - 1) / problem.parts,
      *std::min_element(problem.capacity.begin(), problem.capacity.end()));
}

Status CheckJointProblem(const JointProblem& problem) {
  if (problem.parts < 0 || problem.unit <= 0) {
    return InvalidArgument(
        fmt::format("{} shards in a slot, or gains that are multiples of {}, "
                    "have no meaning",
                    problem.parts, problem.unit));
  }
  IntervalProblem slots{problem.capacity, {}};
  for (const JointGap& gap : problem.gaps) {
    slots.intervals.push_back({gap.idle_since, gap.need, gap.gain});
  }
  CASTOR_RETURN_IF_ERROR(CheckIntervalProblem(slots));
  const auto gaps = static_cast<int32_t>(problem.gaps.size());
  const auto moments = static_cast<int32_t>(problem.capacity.size());
  for (size_t j = 0; j < problem.gaps.size(); ++j) {
    const JointGap& gap = problem.gaps[j];
    if (gap.shard_gain < 0 || gap.shard_gain > gap.gain ||
        gap.gain % problem.unit != 0 || gap.shard_gain % problem.unit != 0) {
      return InvalidArgument(fmt::format(
          "gap {} gains {} for a shard and {} for the chunk: multiples of {}, "
          "the first not negative nor the larger one",
          j, gap.shard_gain, gap.gain, problem.unit));
    }
    if (gap.last_need < 0 || gap.last_need >= moments || gap.need >= moments ||
        gap.before < -1 || gap.before >= gaps ||
        (gap.before >= 0 &&
         problem.gaps[static_cast<size_t>(gap.before)].need != gap.last_need)) {
      return InvalidArgument(fmt::format(
          "gap {} follows gap {} at moment {} of {}, which does not end there",
          j, gap.before, gap.last_need, moments));
    }
  }
  return OkStatus();
}

int32_t ShardSince(const JointProblem& problem, const std::vector<bool>& kept,
                   size_t gap) {
  CASTOR_CHECK(!kept[gap]);
  const JointGap* at = &problem.gaps[gap];
  while (at->before >= 0 && kept[static_cast<size_t>(at->before)]) {
    at = &problem.gaps[static_cast<size_t>(at->before)];
  }
  return at->last_need;
}

JointLine LineOf(const JointProblem& problem, const JointPrices& prices) {
  const Paid slot(prices.slot);
  const Paid shard(prices.shard);
  JointLine line;
  for (size_t t = 0; t < problem.capacity.size(); ++t) {
    line.at_zero += Wide{prices.slot[t]} * problem.capacity[t];
  }
  line.slope = shard.all() * problem.parts - slot.all();
  for (const std::vector<size_t>& chain : ChainsOf(problem)) {
    line.at_zero += BestOf(problem, chain, slot, shard);
  }
  return line;
}

int64_t BoundAt(const JointProblem& problem,
                const std::vector<JointLine>& lines, int64_t split) {
  return Rounded(TotalsOf(problem), Lowest(lines, split));
}

int64_t BoundOf(const JointProblem& problem,
                const std::vector<JointLine>& lines) {
  Wide highest = 0;
  for (int64_t split = 0; split <= LargestSplit(problem); ++split) {
    highest = std::max(highest, Lowest(lines, split));
  }
  return Rounded(TotalsOf(problem), highest);
}

Status VerifyJointSolution(const JointProblem& problem,
                           const JointSolution& solution) {
  const size_t moments = problem.capacity.size();
  const size_t gaps = problem.gaps.size();
  if (solution.kept.size() != gaps || solution.shard_kept.size() != gaps) {
    return Internal(fmt::format("{} and {} choices for {} gaps",
                                solution.kept.size(),
                                solution.shard_kept.size(), gaps));
  }
  if (solution.split < 0 || solution.split > LargestSplit(problem)) {
    return Internal(
        fmt::format("{} slots for shards of {} that are always "
                    "free",
                    solution.split, LargestSplit(problem)));
  }
  Held whole(moments);
  Held parts(moments);
  int64_t gain = 0;
  for (size_t j = 0; j < gaps; ++j) {
    const JointGap& gap = problem.gaps[j];
    if (solution.kept[j]) {
      whole.Add(gap.idle_since, gap.need);
      gain += gap.gain;
      if (!solution.shard_kept[j]) continue;
      return Internal(fmt::format("gap {} keeps both copies for one use", j));
    }
    if (!solution.shard_kept[j]) continue;
    parts.Add(ShardSince(problem, solution.kept, j), gap.need);
    gain += gap.shard_gain;
  }
  const std::vector<int64_t> gathered = whole.ByMoment();
  const std::vector<int64_t> shards = parts.ByMoment();
  for (size_t t = 0; t < moments; ++t) {
    if (gathered[t] > problem.capacity[t] - solution.split ||
        shards[t] > problem.parts * solution.split) {
      return Internal(fmt::format(
          "{} copies in {} slots and {} shards in {} places at moment {}",
          gathered[t], problem.capacity[t] - solution.split, shards[t],
          problem.parts * solution.split, t));
    }
  }
  if (gain != solution.gain) {
    return Internal(
        fmt::format("what is kept gains {} and not {}", gain, solution.gain));
  }
  std::vector<JointLine> lines;
  for (const JointPrices& prices : solution.proof) {
    if (prices.slot.size() != moments || prices.shard.size() != moments ||
        std::any_of(prices.slot.begin(), prices.slot.end(),
                    [](int64_t p) { return p < 0; }) ||
        std::any_of(prices.shard.begin(), prices.shard.end(),
                    [](int64_t p) { return p < 0; })) {
      return Internal("a proof has negative prices, or not one per moment");
    }
    lines.push_back(LineOf(problem, prices));
  }
  const int64_t bound = BoundOf(problem, lines);
  if (bound != solution.bound) {
    return Internal(fmt::format("the prices prove a bound of {} and not {}",
                                bound, solution.bound));
  }
  if (solution.proves >= std::ssize(lines) ||
      (solution.proves >= 0 &&
       BoundOf(problem, {lines[static_cast<size_t>(solution.proves)]}) !=
           bound)) {
    return Internal(fmt::format("proof {} of {} alone does not prove the bound",
                                solution.proves, lines.size()));
  }
  return OkStatus();
}

}  // namespace castor
