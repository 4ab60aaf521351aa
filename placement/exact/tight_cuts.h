// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_EXACT_TIGHT_CUTS_H_
#define CASTOR_PLACEMENT_EXACT_TIGHT_CUTS_H_

// The few moments of an interval problem that can limit what is kept, for the
// .cc files of interval_flow.h. A moment is left out where another one allows
// no more: of a sweep forward and back only the turning point stays, of several
// sweeps one moment per use, and the flow is as small as they are few. Pure,
// thread-safe. Part of the interval flow (interval_flow.h).

#include <cstdint>
#include <vector>

#include "placement/exact/interval_problem.h"

namespace castor::internal {

// As KeepInterval, between cuts in place of moments. One that wraps with begin
// equal to end lies across all of them.
struct CutInterval {
  int32_t interval = 0;
  int32_t begin = 0;
  int32_t end = 0;
  bool wraps = false;
};

struct TightCuts {
  std::vector<int32_t> moments;         // of each cut; they rise
  std::vector<int64_t> capacity;        // of each cut, at most all intervals
  std::vector<CutInterval> intervals;   // those that lie across a cut
  std::vector<int32_t> free_intervals;  // the others: kept in any best choice
};

// What respects the capacity of the cuts respects that of every moment.
TightCuts FindTightCuts(const IntervalProblem& problem);

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_EXACT_TIGHT_CUTS_H_
