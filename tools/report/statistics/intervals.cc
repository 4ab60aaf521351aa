// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/statistics/intervals.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "chunk/base/check.h"

namespace castor {
namespace {

template <typename T>
using LeastFirst = std::priority_queue<T, std::vector<T>, std::greater<T>>;

}  // namespace

IntervalSet Union(std::vector<Interval> intervals) {
  std::sort(
      intervals.begin(), intervals.end(),
      [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  IntervalSet set;
  for (const Interval& interval : intervals) {
    if (interval.length() == 0) continue;
    if (!set.empty() && interval.begin <= set.back().end) {
      set.back().end = std::max(set.back().end, interval.end);
    } else {
      set.push_back(interval);
    }
  }
  return set;
}

IntervalSet Intersection(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet both;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const int64_t begin = std::max(a[i].begin, b[j].begin);
    const int64_t end = std::min(a[i].end, b[j].end);
    if (begin < end) both.push_back({begin, end});
    if (a[i].end < b[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return both;
}

int64_t Length(const IntervalSet& set) {
  int64_t length = 0;
  for (const Interval& interval : set) length += interval.length();
  return length;
}

void AddShares(std::span<const Interval> set, const Interval& window,
               double weight, std::span<double> parts) {
  CASTOR_CHECK_GT(window.length(), int64_t{0});
  const double width =
      static_cast<double>(window.length()) / static_cast<double>(parts.size());
  auto it = std::upper_bound(
      set.begin(), set.end(), window.begin,
      [](int64_t at, const Interval& interval) { return at < interval.end; });
  for (; it != set.end() && it->begin < window.end; ++it) {
    // In parts from the window's begin.
    const double from =
        static_cast<double>(std::max(it->begin, window.begin) - window.begin) /
        width;
    const double to =
        static_cast<double>(std::min(it->end, window.end) - window.begin) /
        width;
    for (auto part = static_cast<size_t>(from);
         part < parts.size() && static_cast<double>(part) < to; ++part) {
      const auto at = static_cast<double>(part);
      parts[part] +=
          weight * std::max(0.0, std::min(to, at + 1) - std::max(from, at));
    }
  }
}

std::vector<int> AssignSubTracks(std::span<const Interval> intervals) {
  LeastFirst<std::pair<int64_t, int>> busy;  // until when, track
  LeastFirst<int> free;
  int tracks = 0;
  std::vector<int> assigned;
  assigned.reserve(intervals.size());
  for (size_t i = 0; i < intervals.size(); ++i) {
    if (i > 0) CASTOR_CHECK_LE(intervals[i - 1].begin, intervals[i].begin);
    while (!busy.empty() && busy.top().first <= intervals[i].begin) {
      free.push(busy.top().second);
      busy.pop();
    }
    if (free.empty()) free.push(tracks++);
    assigned.push_back(free.top());
    busy.emplace(intervals[i].end, free.top());
    free.pop();
  }
  return assigned;
}

}  // namespace castor
