// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/interval_windows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "chunk/base/check.h"

namespace castor::internal {
namespace {

class Windows {
 public:
  Windows(const IntervalProblem& problem, int64_t window)
      : problem_(problem),
        moments_(std::ssize(problem.capacity)),
        left_(problem.capacity) {
    const auto intervals = std::ssize(problem.intervals);
    length_ = std::clamp<int64_t>(moments_ * window / intervals,
                                  std::min<int64_t>(2, moments_), moments_);
    const bool wraps =
        std::any_of(problem.intervals.begin(), problem.intervals.end(),
                    [](const KeepInterval& each) { return each.wraps(); });
    // What wraps is decided first, by windows that see both ends of the step.
    first_ = wraps ? moments_ - length_ / 2 : 0;
    order_.resize(problem.intervals.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::sort(order_.begin(), order_.end(), [this](size_t a, size_t b) {
      return Begin(a) != Begin(b) ? Begin(a) < Begin(b) : a < b;
    });
    solution_.kept.assign(problem.intervals.size(), false);
    solution_.price.assign(problem.capacity.size(), 0);
  }

  IntervalSolution Run(const LineSolver& solve) {
    const int64_t step = std::max<int64_t>(1, length_ / 2);
    for (int64_t at = 0; at < moments_; at += step) {
      Decide(at, std::min(at + step, moments_), solve);
    }
    solution_.bound = PriceBound(problem_, solution_.price);
    return solution_;
  }

 private:
  // Places count from `first_` on; those past the end of the step are its
  // beginning.
  int64_t Begin(size_t interval) const {
    const int64_t place = problem_.intervals[interval].begin - first_;
    return place < 0 ? place + moments_ : place;
  }
  int64_t End(size_t interval) const {
    const KeepInterval& of = problem_.intervals[interval];
    return Begin(interval) + of.end - of.begin + (of.wraps() ? moments_ : 0);
  }
  size_t Moment(int64_t place) const {
    return static_cast<size_t>((place + first_) % moments_);
  }

  // Decides what begins at places [at, until).
  void Decide(int64_t at, int64_t until, const LineSolver& solve) {
    IntervalProblem part;
    for (int64_t i = 0; i < length_; ++i) {
      part.capacity.push_back(left_[Moment(at + i)]);
    }
    std::vector<size_t> which;
    while (next_ < order_.size() && Begin(order_[next_]) < at) ++next_;
    for (size_t i = next_; i < order_.size(); ++i) {
      const size_t interval = order_[i];
      if (Begin(interval) >= at + length_) break;
      if (End(interval) > at + length_) continue;
      which.push_back(interval);
      part.intervals.push_back({static_cast<int32_t>(Begin(interval) - at),
                                static_cast<int32_t>(End(interval) - at),
                                problem_.intervals[interval].gain});
    }
    const IntervalSolution found = solve(part);
    // A window's prices are least like those of the whole at its ends: where
    // slots are taken already, and where it does not see what comes.
    for (int64_t i = at == 0 ? 0 : length_ / 4; i < length_ - length_ / 4;
         ++i) {
      if (at + i >= moments_ && first_ == 0) break;
      solution_.price[Moment(at + i)] = found.price[static_cast<size_t>(i)];
    }
    for (size_t i = 0; i < which.size(); ++i) {
      if (found.kept[i] && Begin(which[i]) < until) Keep(which[i]);
    }
  }

  void Keep(size_t interval) {
    solution_.kept[interval] = true;
    solution_.gain += problem_.intervals[interval].gain;
    for (int64_t place = Begin(interval); place < End(interval); ++place) {
      CASTOR_CHECK_GT(left_[Moment(place)]--, 0);
    }
  }

  const IntervalProblem& problem_;
  const int64_t moments_;
  int64_t length_ = 0;         // of a window, in moments
  int64_t first_ = 0;          // the moment at place 0
  std::vector<int64_t> left_;  // slots, by moment
  std::vector<size_t> order_;  // intervals by their beginnings
  size_t next_ = 0;            // of order_: the first that is not decided
  IntervalSolution solution_;
};

}  // namespace

IntervalSolution SolveInWindows(const IntervalProblem& problem, int64_t window,
                                const LineSolver& solve) {
  CASTOR_CHECK_GE(window, 2);
  CASTOR_CHECK(!problem.intervals.empty());
  return Windows(problem, window).Run(solve);
}

}  // namespace castor::internal
