// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/sub_tracks.h"

#include <functional>
#include <queue>
#include <utility>

#include "chunk/base/check.h"

namespace castor {
namespace {

template <typename T>
using LeastFirst = std::priority_queue<T, std::vector<T>, std::greater<T>>;

}  // namespace

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
