// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/fetch_schedule.h"

#include <algorithm>
#include <cstdint>

#include "placement/run_event.h"

namespace castor::internal {

Plan ScheduleFetches(size_t moments, int prefetch_depth,
                     const std::vector<ChunkId>& kept,
                     const ServedTrace& served) {
  Plan plan;
  plan.initial = kept;
  std::vector<std::vector<Move>> slices(2 * moments);
  // What makes room goes before what may come in its place.
  for (const RoomDrop& drop : served.drops) {
    slices[drop.slice].push_back(
        {MoveKind::kRelease, RunCause::kRoom, drop.chunk});
  }
  const auto add = [&](size_t slice, const DemandFetch& fetch, RunCause cause) {
    if (fetch.victim.valid()) {
      slices[slice].push_back(
          {MoveKind::kRelease, RunCause::kRoom, fetch.victim});
    }
    slices[slice].push_back({MoveKind::kGather, cause, fetch.chunk});
  };
  const size_t depth = static_cast<size_t>(prefetch_depth);
  int64_t issued = -1;
  for (size_t j = 0; j < served.fetches.size(); ++j) {
    const DemandFetch& fetch = served.fetches[j];
    int64_t issue = std::max(issued, fetch.not_before);
    if (fetch.victim.valid()) issue = std::max<int64_t>(issue, 0);
    if (j >= depth && depth > 0) {
      issue = std::max(issue, served.fetches[j - depth].use);
    }
    if (depth == 0 || issue + 1 >= fetch.use + (fetch.use == 0)) {
      add(static_cast<size_t>(2 * fetch.use), fetch, RunCause::kDemand);
      issued = fetch.use;
      continue;
    }
    issued = issue;
    if (issue < 0) {
      plan.initial.push_back(fetch.chunk);
    } else {
      add(static_cast<size_t>(2 * issue + 1), fetch, RunCause::kPrefetch);
    }
  }
  for (const std::vector<Move>& slice : slices) {
    plan.first_move.push_back(static_cast<int32_t>(plan.moves.size()));
    plan.moves.insert(plan.moves.end(), slice.begin(), slice.end());
  }
  plan.first_move.push_back(static_cast<int32_t>(plan.moves.size()));
  return plan;
}

}  // namespace castor::internal
