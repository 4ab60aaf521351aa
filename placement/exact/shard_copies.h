// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_EXACT_SHARD_COPIES_H_
#define CASTOR_PLACEMENT_EXACT_SHARD_COPIES_H_

// Which copies of shards a plan keeps beside its gathered copies, for the
// policies' .cc files. Between two gathers of a chunk its shard may stay on the
// device, in a place of its own from the first gather to the second: with the
// gathers given, that is an interval problem in which each gather is a moment,
// and is solved exactly. Pure, thread-safe. Part of the step planner
// (step_planner.h).

#include "chunk/base/status.h"
#include "placement/plan.h"

namespace castor::internal {

// Adds the moves that keep what spares most fetches in the plan's shard_slots;
// with none, the plan stays as it is. What was gathered when before still is.
// REQUIRES: the plan is valid and keeps no copies of shards yet.
Status KeepShards(const PlanProblem& problem, Plan* plan);

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_EXACT_SHARD_COPIES_H_
