// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/plan_cost.h"

#include <cstddef>

namespace castor {

std::vector<double> StepFetchCosts(const PlanProblem& problem,
                                   const Plan& plan) {
  std::vector<double> costs(problem.slots.size(), 0);
  const size_t chunks = problem.param_class.size();
  std::vector<bool> resident(chunks, false);
  std::vector<bool> shard_there(chunks, false);
  const auto pay = [&](ChunkId chunk, double cost) {
    const int32_t slot_class = problem.param_class[chunk.index()];
    costs[static_cast<size_t>(slot_class)] += cost;
  };
  const auto gather = [&](ChunkId chunk, bool from_shard) {
    pay(chunk, problem.fetch_cost[chunk.index()] -
                   (from_shard ? problem.ShardCost(chunk) : 0));
  };
  for (ChunkId chunk : plan.initial) resident[chunk.index()] = true;
  for (ChunkId chunk : plan.initial_shards) shard_there[chunk.index()] = true;
  const std::vector<bool> begins_with_shard = shard_there;
  for (const Move& move : plan.moves) {
    switch (move.kind) {
      case MoveKind::kGather:
        gather(move.chunk, move.from_shard);
        resident[move.chunk.index()] = true;
        break;
      case MoveKind::kRelease:
        resident[move.chunk.index()] = false;
        break;
      case MoveKind::kFetchShard:
        pay(move.chunk, problem.ShardCost(move.chunk));
        shard_there[move.chunk.index()] = true;
        break;
      case MoveKind::kDropShard:
        shard_there[move.chunk.index()] = false;
        break;
    }
  }
  for (ChunkId chunk : plan.initial_shards) {
    const size_t c = chunk.index();
    if (!shard_there[c] || !problem.survives_step[c]) {
      pay(chunk, problem.ShardCost(chunk));
    }
  }
  for (ChunkId chunk : plan.initial) {
    const size_t c = chunk.index();
    if (!resident[c] || !problem.survives_step[c]) {
      gather(chunk, begins_with_shard[c]);
    }
  }
  return costs;
}

}  // namespace castor
