// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_PLACEMENT_EXACT_RANDOM_INTERVALS_H_
#define CASTOR_TESTS_PLACEMENT_EXACT_RANDOM_INTERVALS_H_

// Random interval problems, and their best choice by trying all. Values.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "placement/exact/interval_problem.h"

namespace castor {

// Gains of one to three tiers, or close to one another, times `unit`; every
// capacity from none to more than is wanted. `wraps`: how many of the intervals
// go round.
inline IntervalProblem RandomIntervals(std::mt19937_64& random, int intervals,
                                       int moments, int64_t unit,
                                       int wraps = 0) {
  const auto pick = [&](int n) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(n));
  };
  const std::vector<std::vector<int64_t>> tiers = {
      {1}, {1, 5}, {1, 2, 7}, {1000, 1001, 1003, 1007}};
  const std::vector<int64_t>& gains = tiers[static_cast<size_t>(pick(4))];
  IntervalProblem problem;
  const int most = 1 + pick(4);
  for (int t = 0; t < moments; ++t) problem.capacity.push_back(pick(most + 1));
  for (int j = 0; j < intervals; ++j) {
    const int32_t a = pick(moments + 1);
    const int32_t b = pick(moments + 1);
    const int64_t gain =
        unit * gains[static_cast<size_t>(pick(static_cast<int>(gains.size())))];
    if (j < wraps) {
      problem.intervals.push_back({std::max(a, b), std::min(a, b), gain});
    } else if (a != b) {
      problem.intervals.push_back({std::min(a, b), std::max(a, b), gain});
    }
  }
  return problem;
}

// Of all choices that fit, what the best one gains. REQUIRES: at most 20
// intervals.
inline int64_t MostGain(const IntervalProblem& problem) {
  const size_t n = problem.intervals.size();
  int64_t most = 0;
  for (size_t choice = 0; choice < size_t{1} << n; ++choice) {
    int64_t gain = 0;
    std::vector<int64_t> left = problem.capacity;
    bool fits = true;
    for (size_t j = 0; j < n && fits; ++j) {
      if ((choice >> j & 1) == 0) continue;
      const KeepInterval& interval = problem.intervals[j];
      gain += interval.gain;
      for (size_t t = 0; t < left.size(); ++t) {
        const auto at = static_cast<int32_t>(t);
        const bool inside = interval.wraps()
                                ? at >= interval.begin || at < interval.end
                                : at >= interval.begin && at < interval.end;
        if (inside && --left[t] < 0) fits = false;
      }
    }
    if (fits) most = std::max(most, gain);
  }
  return most;
}

}  // namespace castor

#endif  // CASTOR_TESTS_PLACEMENT_EXACT_RANDOM_INTERVALS_H_
