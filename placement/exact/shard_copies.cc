// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/shard_copies.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "placement/exact/interval_flow.h"
#include "placement/exact/interval_problem.h"
#include "placement/exact/whole_costs.h"
#include "placement/run_event.h"

namespace castor::internal {
namespace {

// One gather of a steady step. All that are made before its first access are at
// moment 0 together, the others each at one of their own.
struct GatherMade {
  ChunkId chunk;
  int32_t move = -1;    // of the plan; -1: before the first access
  bool before = false;  // the shard's copy is kept from the gather before
  bool after = false;   // and to the next
};

// A shard's copy kept from one gather to another, by their numbers.
struct Keep {
  size_t from = 0;
  size_t to = 0;
  bool round = false;  // across the border of the step
};

std::vector<GatherMade> GathersOf(const PlanProblem& problem, const Plan& plan,
                                  size_t slot_class) {
  std::vector<bool> resident(problem.param_class.size(), false);
  for (ChunkId chunk : plan.initial) resident[chunk.index()] = true;
  for (const Move& move : plan.moves) {
    resident[move.chunk.index()] = move.kind == MoveKind::kGather;
  }
  std::vector<GatherMade> gathers;
  const auto add = [&](ChunkId chunk, int32_t move) {
    const int32_t of_chunk = problem.param_class[chunk.index()];
    if (of_chunk != static_cast<int32_t>(slot_class)) return;
    gathers.push_back({chunk, move, false, false});
  };
  for (ChunkId chunk : plan.initial) {
    const size_t c = chunk.index();
    if (!resident[c] || !problem.survives_step[c]) add(chunk, -1);
  }
  for (size_t m = 0; m < plan.moves.size(); ++m) {
    if (plan.moves[m].kind != MoveKind::kGather) continue;
    add(plan.moves[m].chunk, static_cast<int32_t>(m));
  }
  return gathers;
}

// Decides what is kept between the gathers of a class, and marks them.
Status Decide(const PlanProblem& problem, int64_t places,
              std::vector<GatherMade>* gathers) {
  const size_t at_begin = static_cast<size_t>(
      std::count_if(gathers->begin(), gathers->end(),
                    [](const GatherMade& g) { return g.move < 0; }));
  // Moment 0 is there also where nothing is gathered then.
  const auto moment = [&](size_t gather) {
    return gather < at_begin ? 0 : static_cast<int32_t>(gather - at_begin) + 1;
  };
  std::vector<Keep> keeps;
  std::vector<int64_t> first(problem.param_class.size(), -1);
  std::vector<int64_t> last(problem.param_class.size(), -1);
  for (size_t g = 0; g < gathers->size(); ++g) {
    const size_t chunk = (*gathers)[g].chunk.index();
    if (problem.ShardCost((*gathers)[g].chunk) <= 0) continue;
    if (last[chunk] >= 0) {
      keeps.push_back({static_cast<size_t>(last[chunk]), g, false});
    } else {
      first[chunk] = static_cast<int64_t>(g);
    }
    last[chunk] = static_cast<int64_t>(g);
  }
  for (size_t c = 0; c < first.size(); ++c) {
    if (first[c] < 0 || !problem.survives_step[c]) continue;
    keeps.push_back(
        {static_cast<size_t>(last[c]), static_cast<size_t>(first[c]), true});
  }
  if (keeps.empty()) return OkStatus();

  std::vector<double> costs;
  for (const Keep& keep : keeps) {
    costs.push_back(problem.ShardCost((*gathers)[keep.from].chunk));
  }
  const int count_bits = static_cast<int>(std::bit_width(keeps.size() + 1));
  const int shift = count_bits + 10;
  const WholeCosts whole =
      ToWholeCosts(costs, std::max(57 - count_bits - shift, 1));
  IntervalProblem keeping;
  keeping.capacity.assign(gathers->size() - at_begin + 1, places);
  for (size_t j = 0; j < keeps.size(); ++j) {
    const Keep& keep = keeps[j];
    KeepInterval interval{moment(keep.from), moment(keep.to),
                          whole.whole[j] << shift};
    // A copy that is there when the step begins is there at moment 0 as well.
    if (keep.round && keep.from != keep.to && interval.end == 0) {
      interval.end = 1;
    }
    keeping.intervals.push_back(interval);
  }
  CASTOR_RETURN_IF_ERROR(CheckIntervalProblem(keeping));
  const IntervalSolution solution = SolveIntervals(keeping);
  CASTOR_RETURN_IF_ERROR(VerifyIntervalSolution(keeping, solution));
  for (size_t j = 0; j < keeps.size(); ++j) {
    if (!solution.kept[j]) continue;
    (*gathers)[keeps[j].from].after = true;
    (*gathers)[keeps[j].to].before = true;
  }
  return OkStatus();
}

}  // namespace

Status KeepShards(const PlanProblem& problem, Plan* plan) {
  std::vector<GatherMade> of_move(plan->moves.size());
  // What a copy that the step begins with is no longer kept for goes when the
  // step has begun.
  std::vector<Move> at_begin;
  for (size_t k = 0; k < problem.slots.size(); ++k) {
    const int64_t places = plan->ShardSlots(k) * problem.ShardsPerSlot(k);
    if (places == 0) continue;
    std::vector<GatherMade> gathers = GathersOf(problem, *plan, k);
    CASTOR_RETURN_IF_ERROR(Decide(problem, places, &gathers));
    std::vector<bool> met(problem.param_class.size(), false);
    for (const GatherMade& gather : gathers) {
      const bool first = !met[gather.chunk.index()];
      met[gather.chunk.index()] = true;
      const bool begins = gather.move < 0 && gather.after;
      if (begins || (first && gather.before)) {
        plan->initial_shards.push_back(gather.chunk);
      }
      if (gather.move >= 0) {
        of_move[static_cast<size_t>(gather.move)] = gather;
      } else if (gather.before && !gather.after) {
        at_begin.push_back(
            {MoveKind::kDropShard, RunCause::kRoom, gather.chunk});
      }
    }
  }
  std::sort(plan->initial_shards.begin(), plan->initial_shards.end());

  std::vector<Move> moves = std::move(at_begin);
  size_t slice = 0;
  for (size_t m = 0; m < plan->moves.size(); ++m) {
    for (; slice + 1 < plan->first_move.size() &&
           plan->first_move[slice + 1] <= static_cast<int32_t>(m);
         ++slice) {
      plan->first_move[slice + 1] = static_cast<int32_t>(moves.size());
    }
    Move move = plan->moves[m];
    const GatherMade& gather = of_move[m];
    if (gather.after && !gather.before) {
      moves.push_back({MoveKind::kFetchShard, move.cause, move.chunk});
    }
    move.from_shard = gather.before || gather.after;
    moves.push_back(move);
    if (gather.before && !gather.after) {
      moves.push_back({MoveKind::kDropShard, RunCause::kRoom, move.chunk});
    }
  }
  for (; slice + 1 < plan->first_move.size(); ++slice) {
    plan->first_move[slice + 1] = static_cast<int32_t>(moves.size());
  }
  plan->moves = std::move(moves);
  return OkStatus();
}

}  // namespace castor::internal
