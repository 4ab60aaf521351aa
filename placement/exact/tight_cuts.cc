// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/tight_cuts.h"

#include <algorithm>
#include <cstddef>

namespace castor::internal {
namespace {

size_t At(int32_t cut) { return static_cast<size_t>(cut); }

// What must stay of the cuts. With x the share of each interval that is kept,
// at most 1, and `ended` intervals that lie across cut i but not across i + 1:
// what is kept at i is at most what is kept at i + 1, and `ended` more. So cut
// i says nothing new where capacity[i] >= capacity[i + 1] + ended; and likewise
// the other way round. Of a pair at most one points to the other, so that
// following the pointers ends, at a cut that stays or at one that limits
// nothing.
std::vector<bool> Needed(const TightCuts& cuts) {
  const size_t n = cuts.moments.size();
  std::vector<int64_t> began(n + 1, 0);
  std::vector<int64_t> ended(n + 1, 0);
  int64_t across = 0;
  for (const CutInterval& interval : cuts.intervals) {
    if (interval.wraps && interval.begin == interval.end) {
      ++across;
      continue;
    }
    ++began[At(interval.begin)];
    ++ended[At(interval.end)];
    if (interval.wraps && interval.end > 0) ++across;
    if (!interval.wraps && interval.begin == 0) ++across;
  }
  std::vector<bool> needed(n, true);
  for (size_t i = 0; i < n; ++i) {
    if (i > 0) across += began[i] - ended[i];
    if (cuts.capacity[i] >= across) needed[i] = false;
    if (i + 1 == n) break;
    if (cuts.capacity[i] >= cuts.capacity[i + 1] + ended[i + 1]) {
      needed[i] = false;
    } else if (cuts.capacity[i + 1] >= cuts.capacity[i] + began[i + 1]) {
      needed[i + 1] = false;
    }
  }
  return needed;
}

// Leaves out what is not needed; the number of cuts that went.
size_t Restrict(const std::vector<bool>& needed, TightCuts* cuts) {
  const size_t n = needed.size();
  std::vector<int32_t> place(n + 1, 0);  // of a cut, or of the next that stays
  for (size_t i = 0; i < n; ++i) {
    place[i + 1] = place[i] + (needed[i] ? 1 : 0);
    if (!needed[i]) continue;
    cuts->moments[At(place[i])] = cuts->moments[i];
    cuts->capacity[At(place[i])] = cuts->capacity[i];
  }
  const int32_t left = place[n];
  cuts->moments.resize(At(left));
  cuts->capacity.resize(At(left));
  size_t stay = 0;
  for (CutInterval interval : cuts->intervals) {
    interval.begin = place[At(interval.begin)];
    interval.end = place[At(interval.end)];
    const bool none = interval.wraps
                          ? interval.begin == left && interval.end == 0
                          : interval.begin == interval.end;
    if (none) {
      cuts->free_intervals.push_back(interval.interval);
    } else {
      cuts->intervals[stay++] = interval;
    }
  }
  cuts->intervals.resize(stay);
  return n - At(left);
}

}  // namespace

TightCuts FindTightCuts(const IntervalProblem& problem) {
  TightCuts cuts;
  const auto most = static_cast<int64_t>(problem.intervals.size());
  for (size_t t = 0; t < problem.capacity.size(); ++t) {
    cuts.moments.push_back(static_cast<int32_t>(t));
    cuts.capacity.push_back(std::min(problem.capacity[t], most));
  }
  for (size_t j = 0; j < problem.intervals.size(); ++j) {
    const KeepInterval& interval = problem.intervals[j];
    cuts.intervals.push_back({static_cast<int32_t>(j), interval.begin,
                              interval.end, interval.wraps()});
  }
  // Each round makes the next one's intervals shorter; the last ones bring
  // little, and a cut too many only costs time.
  constexpr size_t kWorthwhile = 64;
  for (;;) {
    const size_t before = cuts.moments.size();
    const size_t gone = Restrict(Needed(cuts), &cuts);
    if (gone == 0 || gone < before / kWorthwhile) break;
  }
  return cuts;
}

}  // namespace castor::internal
