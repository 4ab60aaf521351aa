// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_EXACT_INTERVAL_FLOW_H_
#define CASTOR_PLACEMENT_EXACT_INTERVAL_FLOW_H_

// Solves interval problems, with proof.
//
// Where no interval wraps, the linear program's matrix has its ones in a row in
// each column, is totally unimodular, and the program is a minimum-cost flow:
// the answer is the best there is (Chrobak, Karloff, Payne and Vishwanathan
// 1991).
//
// Where some wrap, the ones go round a circle, and the best choice can be less
// than the linear program's value. The program still is a flow, round and
// round, with one condition more: how many slots go round. A price for going
// round stands in for the condition (Lagrange); the price at which as many go
// round as there are slots is found by secants, and gives the program's value,
// which is the bound. Most often a choice comes with it that is as good, and so
// is proved best. Otherwise what wraps is fixed, the rest solved again without
// what wraps, and single ones are changed while that gains.
//
// Gains should be multiples of a number some thousand times as large as there
// are intervals, or kMostTogether if that is less: then ties are broken within
// it. Of choices that gain the same, one that needs slots for a shorter time is
// found, and the price of going round can tell any two apart.
//
// More than kMostTogether intervals are decided window by window, in time that
// grows with their number (interval_windows.h). What is found then fits, and
// its bound is true; both are nearly always best where a step repeats itself.
//
// The same problem gives the same solution, on every machine. Pure,
// thread-safe.

#include <cstdint>

#include "placement/exact/interval_problem.h"

namespace castor {

// Solved as a whole in about a second.
inline constexpr int64_t kMostTogether = 16'000;

// A solution that VerifyIntervalSolution accepts; optimal() where no interval
// wraps and there are no more than kMostTogether. REQUIRES:
// CheckIntervalProblem is ok.
IntervalSolution SolveIntervals(const IntervalProblem& problem);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_EXACT_INTERVAL_FLOW_H_
