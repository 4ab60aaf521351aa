// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_FETCH_SCHEDULE_H_
#define CASTOR_PLACEMENT_FETCH_SCHEDULE_H_

// When each fetch begins, for the policies' .cc files. Pure, thread-safe.

#include <cstddef>
#include <vector>

#include "chunk/base/ids.h"
#include "placement/plan.h"
#include "placement/slot_replay.h"

namespace castor::internal {

// The plan of a step of `moments` that begins with the copies `kept` and makes
// what was served. Every fetch begins after the access that left its slot idle,
// but no more than prefetch_depth before their use at one time, and in the
// order of use; where that is not ahead of the use, on demand. So fetching
// ahead never fetches more.
Plan ScheduleFetches(size_t moments, int prefetch_depth,
                     const std::vector<ChunkId>& kept,
                     const ServedTrace& served);

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_FETCH_SCHEDULE_H_
