// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/interval_flow.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "placement/exact/cut_flow.h"
#include "placement/exact/interval_windows.h"
#include "placement/exact/tight_cuts.h"

namespace castor {
namespace {

using internal::CutFlow;
using internal::CutInterval;
using internal::FindTightCuts;
using internal::TightCuts;

// Prices round a loop that are tried. Each finds a new line of a concave
// function or ends the search; a handful is usual.
constexpr int kMaxPrices = 64;
// Changes of what wraps that are tried: for so many intervals in all.
constexpr int64_t kMaxChangedIntervals = 100'000;
constexpr int64_t kMaxChanges = 32;

// How much of what is too large for one flow is looked at together.
constexpr int64_t kWindow = 2048;

// Well mixed bits of n (Steele, Lea and Flood 2014).
uint64_t Mix(uint64_t n) {
  n += 0x9e3779b97f4a7c15;
  n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9;
  n = (n ^ (n >> 27)) * 0x94d049bb133111eb;
  return n ^ (n >> 31);
}

using Wide = __int128;

// What all gains are multiples of.
int64_t UnitOf(const IntervalProblem& problem) {
  int64_t unit = 0;
  for (const KeepInterval& interval : problem.intervals) {
    unit = std::gcd(unit, interval.gain);
  }
  return unit;
}

// Gains of the cuts' intervals, by so little less that a best choice stays one,
// all together by less than half a unit. Of equal gains the one that needs its
// slot for a shorter time is to be kept, so that slots lie idle for longer, in
// one piece; and a loop's price is to tell any two apart.
std::vector<int64_t> TieBrokenGains(const IntervalProblem& problem,
                                    const TightCuts& cuts) {
  const auto moments = static_cast<int64_t>(problem.capacity.size());
  const int64_t range =
      UnitOf(problem) / (2 * static_cast<int64_t>(cuts.intervals.size()) + 2);
  const int64_t mixed = range / 16;
  std::vector<int64_t> gains;
  for (const CutInterval& cut : cuts.intervals) {
    const auto j = static_cast<size_t>(cut.interval);
    const KeepInterval& interval = problem.intervals[j];
    const int64_t length =
        interval.end - interval.begin + (interval.wraps() ? moments : 0);
    int64_t less = static_cast<int64_t>(Wide{range - mixed} * length / moments);
    if (mixed > 0) less += static_cast<int64_t>(Mix(j) % uint64_t(mixed));
    gains.push_back(interval.gain - less);
  }
  return gains;
}

std::vector<bool> KeptOf(const IntervalProblem& problem, const TightCuts& cuts,
                         const CutFlow& flow) {
  std::vector<bool> kept(problem.intervals.size(), false);
  for (int32_t j : cuts.free_intervals) kept[static_cast<size_t>(j)] = true;
  for (size_t i = 0; i < cuts.intervals.size(); ++i) {
    kept[static_cast<size_t>(cuts.intervals[i].interval)] = flow.kept[i];
  }
  return kept;
}

// Prices with what broke ties rounded away. On a line a price is a sum of
// gains, some of them negated, so that this gives the prices of the gains
// themselves.
std::vector<int64_t> PriceOf(const IntervalProblem& problem,
                             const TightCuts& cuts, const CutFlow& flow,
                             int64_t unit) {
  std::vector<int64_t> price(problem.capacity.size(), 0);
  for (size_t i = 0; i < cuts.moments.size(); ++i) {
    price[static_cast<size_t>(cuts.moments[i])] =
        (flow.price[i] + unit / 2) / unit * unit;
  }
  return price;
}

int64_t GainOf(const IntervalProblem& problem, const std::vector<bool>& kept) {
  int64_t gain = 0;
  for (size_t j = 0; j < kept.size(); ++j) {
    if (kept[j]) gain += problem.intervals[j].gain;
  }
  return gain;
}

IntervalSolution SolveWithoutWraps(const IntervalProblem& problem) {
  const TightCuts cuts = FindTightCuts(problem);
  const CutFlow flow = internal::SolveLine(cuts, TieBrokenGains(problem, cuts));
  IntervalSolution solution;
  solution.kept = KeptOf(problem, cuts, flow);
  solution.gain = GainOf(problem, solution.kept);
  solution.price = PriceOf(problem, cuts, flow, UnitOf(problem));
  solution.bound = PriceBound(problem, solution.price);
  return solution;
}

class LoopSearch {
 public:
  explicit LoopSearch(const IntervalProblem& problem)
      : problem_(problem), cuts_(FindTightCuts(problem)) {
    gains_ = TieBrokenGains(problem, cuts_);
    best_.kept.assign(problem.intervals.size(), false);
    best_.price.assign(problem.capacity.size(), 0);
    best_.bound = PriceBound(problem, best_.price);
  }

  IntervalSolution Run() {
    // A choice with no more slots than there are, and one with more.
    int64_t price = 1;
    if (!gains_.empty()) {
      price = *std::max_element(gains_.begin(), gains_.end());
    }
    Line line = Try(price);
    Line more;
    if (line.extra <= 0) {
      more = Try(1);
    } else {
      while (line.extra > 0) {
        more = std::move(line);
        line = Try(price *= 2);
      }
    }
    Line fewer = std::move(line);
    if (more.extra > 0) Narrow(&fewer, &more);
    if (!best_.optimal()) Improve(fewer.kept, more.kept);
    return best_;
  }

 private:
  // What a price found: gaining `gain` with `extra` slots more, it is worth
  // gain - price * extra at any price.
  struct Line {
    int64_t price = 0;  // at which it is best
    int64_t extra = 0;
    int64_t gain = 0;  // ties broken
    std::vector<bool> kept;
    Wide At(int64_t at) const { return gain - Wide{at} * extra; }
  };

  Line Try(int64_t price) {
    const CutFlow flow = internal::SolveLoop(cuts_, gains_, price);
    Line line;
    line.price = price;
    line.extra = flow.extra;
    line.kept = KeptOf(problem_, cuts_, flow);
    for (size_t i = 0; i < gains_.size(); ++i) {
      if (flow.kept[i]) line.gain += gains_[i];
    }
    for (int64_t unit : {UnitOf(problem_), int64_t{1}}) {
      std::vector<int64_t> prices = PriceOf(problem_, cuts_, flow, unit);
      const int64_t bound = PriceBound(problem_, prices);
      if (bound >= best_.bound) continue;
      best_.bound = bound;
      best_.price = std::move(prices);
    }
    if (line.extra <= 0) Consider(line.kept);
    return line;
  }

  // Looks for a choice with exactly as many slots as there are between the two.
  // Where both are worth the same, a line above them there brings one of them
  // nearer, and if there is none the bound is found. In turns with it, the
  // price at which a straight line between their extras is 0: among lines that
  // are nearly the same, those of broken ties, it is nearer.
  void Narrow(Line* fewer, Line* more) {
    for (int i = 0; i < kMaxPrices && fewer->extra < 0; ++i) {
      const int64_t between = more->extra - fewer->extra;
      int64_t price = (more->gain - fewer->gain) / between;
      bool last = true;
      if (i % 2 == 1) {
        const int64_t straight =
            more->price +
            static_cast<int64_t>(Wide{fewer->price - more->price} *
                                 more->extra / between);
        if (straight > more->price && straight < fewer->price) {
          price = straight;
          last = false;
        }
      }
      price = std::max<int64_t>(price, 1);
      Line line = Try(price);
      if (last && line.extra != 0 &&
          line.At(price) <= std::max(fewer->At(price), more->At(price))) {
        return;
      }
      *(line.extra > 0 ? more : fewer) = std::move(line);
    }
  }

  void Consider(const std::vector<bool>& kept) {
    if (const int64_t gain = GainOf(problem_, kept); gain > best_.gain) {
      best_.gain = gain;
      best_.kept = kept;
    }
  }

  // The best choice with exactly these of the intervals that wrap; its gain, or
  // nothing where they do not fit.
  std::optional<int64_t> SolveRest(const std::vector<bool>& wrapped) {
    IntervalProblem rest;
    rest.capacity = problem_.capacity;
    std::vector<size_t> which;
    std::vector<int64_t> steps(rest.capacity.size() + 1, 0);
    std::vector<bool> kept(problem_.intervals.size(), false);
    for (size_t j = 0; j < problem_.intervals.size(); ++j) {
      const KeepInterval& interval = problem_.intervals[j];
      if (!interval.wraps()) {
        rest.intervals.push_back(interval);
        which.push_back(j);
      } else if (wrapped[j]) {
        kept[j] = true;
        ++steps[0];
        --steps[static_cast<size_t>(interval.end)];
        ++steps[static_cast<size_t>(interval.begin)];
      }
    }
    int64_t held = 0;
    for (size_t t = 0; t < rest.capacity.size(); ++t) {
      held += steps[t];
      rest.capacity[t] -= held;
      if (rest.capacity[t] < 0) return std::nullopt;
    }
    const IntervalSolution solution = SolveWithoutWraps(rest);
    for (size_t i = 0; i < which.size(); ++i) kept[which[i]] = solution.kept[i];
    Consider(kept);
    return GainOf(problem_, kept);
  }

  // From `fits` on, what wraps becomes more like `other`, while that gains.
  void Improve(const std::vector<bool>& fits, const std::vector<bool>& other) {
    std::vector<bool> wrapped = fits;
    int64_t gain = *SolveRest(wrapped);
    int64_t changes =
        kMaxChangedIntervals / static_cast<int64_t>(problem_.intervals.size());
    changes = std::min(changes, kMaxChanges);
    for (bool better = true; better && !best_.optimal();) {
      better = false;
      for (size_t j = 0; j < wrapped.size() && changes > 0; ++j) {
        if (!problem_.intervals[j].wraps() || wrapped[j] == other[j]) continue;
        --changes;
        wrapped[j] = other[j];
        const std::optional<int64_t> changed = SolveRest(wrapped);
        if (changed && *changed > gain) {
          gain = *changed;
          better = true;
        } else {
          wrapped[j] = !other[j];
        }
      }
    }
  }

  const IntervalProblem& problem_;
  const TightCuts cuts_;
  std::vector<int64_t> gains_;  // by interval of the cuts, ties broken
  IntervalSolution best_;
};

}  // namespace

IntervalSolution SolveIntervals(const IntervalProblem& problem) {
  CASTOR_CHECK(CheckIntervalProblem(problem).ok());
  if (std::ssize(problem.intervals) > kMostTogether) {
    return internal::SolveInWindows(problem, kWindow, SolveWithoutWraps);
  }
  const bool wraps =
      std::any_of(problem.intervals.begin(), problem.intervals.end(),
                  [](const KeepInterval& i) { return i.wraps(); });
  return wraps ? LoopSearch(problem).Run() : SolveWithoutWraps(problem);
}

}  // namespace castor
