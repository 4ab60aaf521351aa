// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_EXACT_INTERVAL_WINDOWS_H_
#define CASTOR_PLACEMENT_EXACT_INTERVAL_WINDOWS_H_

// Large interval problems, in time that grows with their size: the exact flow's
// grows with its square. A window goes over the moments by half its length at a
// time. What begins in its first half is decided by the exact choice for the
// whole window, so that each decision looks half a window ahead. The prices of
// the windows' middles, put together, prove a bound for the whole problem. Pure
// function, thread-safe. Part of the interval flow (interval_flow.h).

#include <cstdint>
#include <functional>

#include "placement/exact/interval_problem.h"

namespace castor::internal {

// The best choice for a problem of which no interval wraps.
using LineSolver = std::function<IntervalSolution(const IntervalProblem&)>;

// A choice that fits, with its bound. `window` is about how many intervals are
// looked at together. Intervals of more than half a window are seldom kept.
// REQUIRES: window >= 2.
IntervalSolution SolveInWindows(const IntervalProblem& problem, int64_t window,
                                const LineSolver& solve);

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_EXACT_INTERVAL_WINDOWS_H_
