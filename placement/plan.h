// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_PLAN_H_
#define CASTOR_PLACEMENT_PLAN_H_

// The ordered moves that serve a trace, and what a planner must know to make
// them. A plan speaks of gathered slots only: which chunk's gathered copy is on
// the device between which moments. Some slots hold copies of this rank's
// shards in place of whole chunks; a gather sends from such a copy without a
// fetch. Values.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "placement/run_event.h"
#include "placement/trace.h"

namespace castor {

inline constexpr int32_t kNoSlotClass = -1;

// Who decides which copies stay.
enum class PlanPolicy : uint8_t {
  kAuto,     // next use weighed by cost: placement/policy/next_use_policy.h
  kPlanned,  // the cheapest, with its proof: placement/exact/exact_policy.h
};

constexpr std::string_view PlanPolicyName(PlanPolicy policy) {
  switch (policy) {
    case PlanPolicy::kAuto:
      return "auto";
    case PlanPolicy::kPlanned:
      return "planned";
  }
  return "unknown";
}

// What the numbers of PlanProblem::fetch_cost are.
enum class FetchCostUnit : uint8_t {
  kLinks,    // that the bytes cross, each of them counting the same
  kSeconds,  // that measured links take
};

// When what is fetched ahead of its use begins.
enum class PrefetchMode : uint8_t {
  kDepth,  // so many before their use, whatever they take
  // As late as they may and still be there: placement/policy/fetch_deadlines.h.
  // As kDepth where links or the step's compute time are not known.
  kDeadlines,
};

struct Prefetch {
  PrefetchMode mode = PrefetchMode::kDepth;
  // Copies that may be gathered ahead of their use at one time; 0: none.
  int depth = 0;

  friend bool operator==(const Prefetch&, const Prefetch&) = default;
};

// What people and programs write in place of a depth.
inline constexpr std::string_view kPrefetchByDeadlines = "deadlines";

// What a fetch passes, one after the other, and how long it is on each, in
// nanoseconds: from the drive, to the device, between ranks.
inline constexpr size_t kFetchLegs = 3;
using FetchLegs = std::array<int64_t, kFetchLegs>;

// A fetch is on no leg for longer than ten minutes, so that no sum of them
// overflows.
inline constexpr int64_t kMaxLegNs = 600'000'000'000;

struct PlanProblem {
  // By ChunkId. The class of gathered slots its parameters need; kNoSlotClass
  // for a chunk whose home is the whole of it on the device.
  std::vector<int32_t> param_class;
  // By ChunkId. The class its gradient needs while it is open; kNoSlotClass
  // where it is written over the parameters: the trace then has a use of the
  // chunk around it, and when it is closed there is no copy any more.
  std::vector<int32_t> grad_class;
  // By ChunkId. Cost of one fetch and gather, in any one unit; positive.
  std::vector<double> fetch_cost;
  FetchCostUnit cost_unit = FetchCostUnit::kLinks;
  // By ChunkId. Of that, what bringing the shard costs, which a copy of it that
  // is kept on the device spares; 0: none may be. Empty: no chunk's may.
  std::vector<double> shard_cost;
  // By class: how many of its chunks' shards one slot holds. Empty: none.
  std::vector<int64_t> shards_per_slot;
  // By ChunkId. Whether a copy is still valid in the next step (frozen).
  std::vector<bool> survives_step;
  std::vector<int64_t> slots;  // by class
  Prefetch prefetch;
  // What deadlines are made of. By ChunkId; empty: not every link is known.
  std::vector<FetchLegs> fetch_ns;
  // How long the trainer computes in a step; 0: unknown. It is shared out by
  // what is used (compute_spread.h): bytes, by ChunkId.
  int64_t step_compute_ns = 0;
  std::vector<Bytes> used_bytes;
  // By class, then by moment: most slots that something else (a lease) takes
  // between the access there and the next one; the last moment is followed by
  // the first. Empty, or a class's empty: none.
  std::vector<std::vector<int64_t>> slots_taken;

  // The class of a slot for the chunk's bytes that are neither: what is reduced
  // or refreshed.
  int32_t passing_class(ChunkId chunk) const {
    const int32_t grad = grad_class[chunk.index()];
    return grad == kNoSlotClass ? param_class[chunk.index()] : grad;
  }
  // Slots taken after the access at `moment` and until the next.
  int64_t TakenAfter(size_t slot_class, size_t moment) const {
    if (slots_taken.empty() || slots_taken[slot_class].empty()) return 0;
    return slots_taken[slot_class][moment];
  }
  // Slots taken just before the access at `moment` and while it is served: what
  // is taken both before and after it.
  int64_t TakenDuring(size_t slot_class, size_t moment) const {
    if (slots_taken.empty() || slots_taken[slot_class].empty()) return 0;
    const std::vector<int64_t>& taken = slots_taken[slot_class];
    return std::min(moment == 0 ? taken.back() : taken[moment - 1],
                    taken[moment]);
  }
  double ShardCost(ChunkId chunk) const {
    return shard_cost.empty() ? 0 : shard_cost[chunk.index()];
  }
  int64_t ShardsPerSlot(size_t slot_class) const {
    return shards_per_slot.empty() ? 0 : shards_per_slot[slot_class];
  }
};

enum class MoveKind : uint8_t {
  kGather,
  kRelease,
  kFetchShard,  // a copy of the shard, into a place of its own
  kDropShard,
};

struct Move {
  MoveKind kind = MoveKind::kGather;
  RunCause cause = RunCause::kDemand;
  ChunkId chunk;
  // Of kGather: the shard's copy is there and is what is sent.
  bool from_shard = false;

  friend bool operator==(const Move&, const Move&) = default;
};

// Moves before the access at moment i are [first_move[2 i], first_move[2 i +
// 1]): what the access needs. Moves after it are [first_move[2 i + 1],
// first_move[2 i + 2]): what may be fetched ahead once it is served.
struct Plan {
  // Copies that are there (or on their way) when the step begins, in the order
  // in which they are gathered.
  std::vector<ChunkId> initial;
  std::vector<Move> moves;
  std::vector<int32_t> first_move;  // 2 x accesses + 1
  // By class: slots that hold shards' copies, all the step long. Empty: none.
  std::vector<int64_t> shard_slots;
  // Shards' copies that are there, or on their way, when the step begins: what
  // is in `initial` too is gathered from them.
  std::vector<ChunkId> initial_shards;

  int64_t ShardSlots(size_t slot_class) const {
    return shard_slots.empty() ? 0 : shard_slots[slot_class];
  }

  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace castor

#endif  // CASTOR_PLACEMENT_PLAN_H_
