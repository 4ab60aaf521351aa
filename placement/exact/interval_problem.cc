// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/interval_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace castor {
namespace {

// Prices are as large as gains and capacities as large as anything.
using Wide = __int128;

}  // namespace

Status CheckIntervalProblem(const IntervalProblem& problem) {
  const auto moments = static_cast<int64_t>(problem.capacity.size());
  for (size_t t = 0; t < problem.capacity.size(); ++t) {
    if (problem.capacity[t] < 0) {
      return InvalidArgument(fmt::format(
          "{} slots at moment {} have no meaning", problem.capacity[t], t));
    }
  }
  int64_t total = 0;
  for (size_t j = 0; j < problem.intervals.size(); ++j) {
    const KeepInterval& interval = problem.intervals[j];
    if (interval.begin < 0 || interval.end < 0 || interval.begin > moments ||
        interval.end > moments) {
      return InvalidArgument(
          fmt::format("interval {} from {} to {} is not within {} moments", j,
                      interval.begin, interval.end, moments));
    }
    if (interval.gain <= 0 || interval.gain >= kMaxTotalGain - total) {
      return InvalidArgument(fmt::format(
          "interval {} gains {}: gains are positive and less than {} in all", j,
          interval.gain, kMaxTotalGain));
    }
    total += interval.gain;
  }
  return OkStatus();
}

int64_t PriceBound(const IntervalProblem& problem,
                   const std::vector<int64_t>& price) {
  std::vector<Wide> before(price.size() + 1);  // prices of moments before
  Wide bound = 0;
  for (size_t t = 0; t < price.size(); ++t) {
    before[t + 1] = before[t] + price[t];
    // Beyond all gains it proves nothing, however far.
    bound = std::min<Wide>(bound + Wide{price[t]} * problem.capacity[t],
                           kMaxTotalGain);
  }
  int64_t total = 0;
  int64_t unit = 0;
  for (const KeepInterval& interval : problem.intervals) {
    const auto begin = static_cast<size_t>(interval.begin);
    const auto end = static_cast<size_t>(interval.end);
    Wide pays = before[end] - before[begin];
    if (interval.wraps()) pays += before.back();
    bound += std::max<Wide>(0, interval.gain - pays);
    total += interval.gain;
    unit = std::gcd(unit, interval.gain);
  }
  if (bound >= total) return total;
  const int64_t whole = static_cast<int64_t>(bound);
  return whole - whole % unit;
}

Status VerifyIntervalSolution(const IntervalProblem& problem,
                              const IntervalSolution& solution) {
  CASTOR_RETURN_IF_ERROR(CheckIntervalProblem(problem));
  const size_t moments = problem.capacity.size();
  if (solution.kept.size() != problem.intervals.size() ||
      solution.price.size() != moments) {
    return Internal(
        fmt::format("{} choices for {} intervals and {} prices for {} moments",
                    solution.kept.size(), problem.intervals.size(),
                    solution.price.size(), moments));
  }
  std::vector<int64_t> steps(moments + 1, 0);  // copies more than just before
  int64_t gain = 0;
  for (size_t j = 0; j < problem.intervals.size(); ++j) {
    if (!solution.kept[j]) continue;
    const KeepInterval& interval = problem.intervals[j];
    ++steps[static_cast<size_t>(interval.begin)];
    --steps[static_cast<size_t>(interval.end)];
    if (interval.wraps()) ++steps[0];
    gain += interval.gain;
  }
  int64_t held = 0;
  for (size_t t = 0; t < moments; ++t) {
    held += steps[t];
    if (held > problem.capacity[t]) {
      return Internal(fmt::format("{} copies are kept at moment {} in {} slots",
                                  held, t, problem.capacity[t]));
    }
    if (solution.price[t] < 0) {
      return Internal(
          fmt::format("the price at moment {} is {}", t, solution.price[t]));
    }
  }
  if (gain != solution.gain) {
    return Internal(
        fmt::format("what is kept gains {} and not {}", gain, solution.gain));
  }
  const int64_t bound = PriceBound(problem, solution.price);
  if (bound != solution.bound) {
    return Internal(fmt::format("the prices prove a bound of {} and not {}",
                                bound, solution.bound));
  }
  return OkStatus();
}

}  // namespace castor
