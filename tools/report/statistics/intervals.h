// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_STATISTICS_INTERVALS_H_
#define CASTOR_TOOLS_REPORT_STATISTICS_INTERVALS_H_

// Stretches of time, half open, and sets of them. A link that carries three
// transfers at once is busy once: whoever asks how long needs the union, not
// the sum. Values and pure functions, thread-safe.
// Part of the statistics of a run (run_statistics.h).

#include <cstdint>
#include <span>
#include <vector>

namespace castor {

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;  // never before begin

  int64_t length() const { return end - begin; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

// Ascending, disjoint, none empty, no two that touch.
using IntervalSet = std::vector<Interval>;

// The points that any of `intervals` holds.
IntervalSet Union(std::vector<Interval> intervals);

// The points that both hold.
IntervalSet Intersection(const IntervalSet& a, const IntervalSet& b);

int64_t Length(const IntervalSet& set);

// Cuts `window` into parts.size() equal parts and adds to each the share of its
// time that `set` covers, times `weight`. REQUIRES: `window` not empty.
void AddShares(std::span<const Interval> set, const Interval& window,
               double weight, std::span<double> parts);

// For each interval a track on which it overlaps no other, counted from 0: the
// lowest that is free when it begins. Viewers of traces drop or misplace events
// that overlap in part. REQUIRES: ascending by begin.
std::vector<int> AssignSubTracks(std::span<const Interval> intervals);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_STATISTICS_INTERVALS_H_
