// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_PLAN_H_
#define CASTOR_PLACEMENT_PLAN_H_

// The ordered moves that serve a trace, and what a planner must know to make
// them. A plan speaks of gathered slots only: which chunk's gathered copy is on
// the device between which moments. Values.

#include <cstdint>
#include <vector>

#include "chunk/base/ids.h"
#include "placement/run_event.h"
#include "placement/trace.h"

namespace castor {

inline constexpr int32_t kNoSlotClass = -1;

struct PlanProblem {
  // By ChunkId. The class of gathered slots its parameters need; kNoSlotClass
  // for a chunk whose home is the whole of it on the device.
  std::vector<int32_t> param_class;
  // By ChunkId. The class its gradient needs while it is open.
  std::vector<int32_t> grad_class;
  // By ChunkId. Cost of one fetch and gather, in any one unit; positive.
  std::vector<double> fetch_cost;
  // By ChunkId. Whether a copy is still valid in the next step (frozen).
  std::vector<bool> survives_step;
  std::vector<int64_t> slots;  // by class
  // Copies that may be gathered ahead of their use at one time; 0: none.
  int prefetch_depth = 0;
};

enum class MoveKind : uint8_t { kGather, kRelease };

struct Move {
  MoveKind kind = MoveKind::kGather;
  RunCause cause = RunCause::kDemand;
  ChunkId chunk;

  friend bool operator==(const Move&, const Move&) = default;
};

// Moves are made just before an access is served (what it needs) or just after
// (what may be fetched ahead once it is served): those before the access at
// moment i are [first_move[2 i], first_move[2 i + 1]), those after it
// [first_move[2 i + 1], first_move[2 i + 2]).
struct Plan {
  // Copies that are there (or on their way) when the step begins, in the order
  // in which they are gathered.
  std::vector<ChunkId> initial;
  std::vector<Move> moves;
  std::vector<int32_t> first_move;  // 2 x accesses + 1

  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace castor

#endif  // CASTOR_PLACEMENT_PLAN_H_
