// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_EXACT_INTERVAL_PROBLEM_H_
#define CASTOR_PLACEMENT_EXACT_INTERVAL_PROBLEM_H_

// Which copies to keep from one use to the next, as a problem by itself:
// intervals of moments, what keeping each of them gains, and slots at each
// moment. With it comes the check of an answer, which knows nothing of how
// answers are found.
//
// The proof is linear programming's (Chrobak et al. 1991 for weighted caching):
// give a slot at moment t any price p(t) >= 0. What is kept pays for the slots
// it takes, and all slots together cost no more than sum p(t) capacity(t).
// Hence no choice gains more than
//
//   sum p(t) capacity(t) + sum over intervals max(0, gain - its prices),
//
// whatever the prices are. Prices that meet the gain of a choice prove it best.
// Values and pure functions, thread-safe. Part of the interval flow
// (interval_flow.h).

#include <cstdint>
#include <vector>

#include "chunk/base/status.h"

namespace castor {

// One way to keep one copy: its slot at the moments [begin, end), or, where
// begin >= end, from `begin` to the last moment and from the first to `end`.
struct KeepInterval {
  int32_t begin = 0;
  int32_t end = 0;
  int64_t gain = 0;  // positive

  bool wraps() const { return begin >= end; }

  friend bool operator==(const KeepInterval&, const KeepInterval&) = default;
};

struct IntervalProblem {
  std::vector<int64_t> capacity;  // by moment; not negative
  std::vector<KeepInterval> intervals;
};

// The sum of all gains stays below this, so that sums of prices do as well.
inline constexpr int64_t kMaxTotalGain = int64_t{1} << 58;

struct IntervalSolution {
  std::vector<bool> kept;  // by interval
  int64_t gain = 0;        // of what is kept
  // By moment, not negative: one more slot there gains at most that much, one
  // less loses at least that much.
  std::vector<int64_t> price;
  // What the prices prove: no choice gains more. Rounded down to a multiple of
  // what all gains are multiples of.
  int64_t bound = 0;

  bool optimal() const { return gain == bound; }

  friend bool operator==(const IntervalSolution&,
                         const IntervalSolution&) = default;
};

// InvalidArgument, naming the first thing that has no meaning: an interval
// outside the moments, a gain or a capacity that is not as said above.
Status CheckIntervalProblem(const IntervalProblem& problem);

// The bound that prices prove, or the sum of all gains where that is less.
// REQUIRES: CheckIntervalProblem is ok; a price for each moment, none negative.
int64_t PriceBound(const IntervalProblem& problem,
                   const std::vector<int64_t>& price);

// Ok, or Internal with the first thing that does not hold: more is kept at a
// moment than there are slots, or gain or bound is not what it claims to be.
// Whether the solution is best is then what optimal() says.
Status VerifyIntervalSolution(const IntervalProblem& problem,
                              const IntervalSolution& solution);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_EXACT_INTERVAL_PROBLEM_H_
