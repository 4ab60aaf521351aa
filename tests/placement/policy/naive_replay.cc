// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/placement/policy/naive_replay.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "chunk/base/ids.h"

namespace castor {
namespace {

// What is on the device between two events.
struct There {
  std::set<int32_t> whole;
  std::set<int32_t> shards;
  std::map<int32_t, int> uses;
  std::set<int32_t> grads;
};

class Naive {
 public:
  Naive(const PlanProblem& problem, const Plan& plan)
      : problem_(problem), plan_(plan) {}

  bool Holds(const Trace& trace) {
    if (!ShapeHolds(trace.size())) return false;
    for (const ChunkId chunk : plan_.initial_shards) {
      if (!FetchShard(chunk.value())) return false;
    }
    for (const ChunkId chunk : plan_.initial) {
      const bool kept = there_.shards.count(chunk.value()) > 0;
      if (!Gather(chunk.value(), kept)) return false;
      if (!Fits(0, true, problem_.param_class[At(chunk.value())])) return false;
    }
    for (size_t i = 0; i < trace.size(); ++i) {
      if (!MovesHold(2 * i, i, true)) return false;
      if (!Serve(trace[i])) return false;
      if (trace[i].kind == AccessKind::kGradOpen &&
          !Fits(i, true, problem_.grad_class[trace[i].chunk.index()])) {
        return false;
      }
      if (!MovesHold(2 * i + 1, i, false)) return false;
      for (size_t k = 0; k < problem_.slots.size(); ++k) {
        if (!Fits(i, false, static_cast<int32_t>(k))) return false;
      }
    }
    for (const auto& [chunk, uses] : there_.uses) {
      if (uses > 0) return false;
    }
    for (const int32_t chunk : there_.shards) {
      if (!problem_.survives_step[At(chunk)]) return false;
    }
    return there_.grads.empty();
  }

 private:
  static size_t At(int32_t index) { return static_cast<size_t>(index); }

  bool ShapeHolds(size_t accesses) const {
    if (!plan_.shard_slots.empty() &&
        plan_.shard_slots.size() != problem_.slots.size()) {
      return false;
    }
    for (size_t k = 0; k < plan_.shard_slots.size(); ++k) {
      if (plan_.shard_slots[k] < 0) return false;
      if (plan_.shard_slots[k] > problem_.slots[k]) return false;
    }
    const std::vector<int32_t>& first = plan_.first_move;
    if (first.size() != 2 * accesses + 1 || first.front() != 0) return false;
    for (size_t i = 1; i < first.size(); ++i) {
      if (first[i] < first[i - 1]) return false;
    }
    return At(first.back()) == plan_.moves.size();
  }

  // The class holds no more than it has, less what something else takes then.
  bool Fits(size_t moment, bool during, int32_t slot_class) const {
    if (slot_class == kNoSlotClass) return true;
    const size_t k = At(slot_class);
    int64_t held = 0;
    for (const int32_t chunk : there_.whole) {
      held += problem_.param_class[At(chunk)] == slot_class;
    }
    for (const int32_t chunk : there_.grads) {
      held += problem_.grad_class[At(chunk)] == slot_class;
    }
    const int64_t taken = during ? problem_.TakenDuring(k, moment)
                                 : problem_.TakenAfter(k, moment);
    return held <= problem_.slots[k] - plan_.ShardSlots(k) - taken;
  }

  bool MovesHold(size_t slice, size_t moment, bool before) {
    for (int32_t m = plan_.first_move[slice]; m < plan_.first_move[slice + 1];
         ++m) {
      const Move& move = plan_.moves[At(m)];
      if (!Make(move)) return false;
      if (move.kind == MoveKind::kGather &&
          !Fits(moment, before, problem_.param_class[move.chunk.index()])) {
        return false;
      }
    }
    return true;
  }

  bool Make(const Move& move) {
    const int32_t chunk = move.chunk.value();
    switch (move.kind) {
      case MoveKind::kGather:
        return Gather(chunk, move.from_shard);
      case MoveKind::kRelease:
        return Known(chunk) && there_.uses[chunk] == 0 &&
               there_.whole.erase(chunk) > 0;
      case MoveKind::kFetchShard:
        return FetchShard(chunk);
      case MoveKind::kDropShard:
        return there_.shards.erase(chunk) > 0;
    }
    return false;
  }

  bool Known(int32_t chunk) const {
    return chunk >= 0 && At(chunk) < problem_.param_class.size();
  }

  bool Gather(int32_t chunk, bool from_shard) {
    return Known(chunk) && problem_.param_class[At(chunk)] != kNoSlotClass &&
           from_shard == (there_.shards.count(chunk) > 0) &&
           there_.whole.insert(chunk).second;
  }

  bool FetchShard(int32_t chunk) {
    if (!Known(chunk) || problem_.param_class[At(chunk)] == kNoSlotClass ||
        problem_.ShardCost(ChunkId(chunk)) <= 0 ||
        !there_.shards.insert(chunk).second) {
      return false;
    }
    const size_t k = At(problem_.param_class[At(chunk)]);
    int64_t held = 0;
    for (const int32_t other : there_.shards) {
      held += At(problem_.param_class[At(other)]) == k;
    }
    return held <= plan_.ShardSlots(k) * problem_.ShardsPerSlot(k);
  }

  bool Serve(const Access& access) {
    const int32_t chunk = access.chunk.value();
    if (!Known(chunk)) return false;
    const bool in_place = problem_.grad_class[At(chunk)] == kNoSlotClass;
    switch (access.kind) {
      case AccessKind::kUse:
        ++there_.uses[chunk];
        return problem_.param_class[At(chunk)] == kNoSlotClass ||
               there_.whole.count(chunk) > 0;
      case AccessKind::kUseEnd:
        return --there_.uses[chunk] >= 0;
      case AccessKind::kGradOpen:
        return there_.grads.insert(chunk).second &&
               (!in_place || there_.uses[chunk] > 0);
      case AccessKind::kGradClose:
        if (there_.grads.erase(chunk) == 0) return false;
        return !in_place || there_.whole.erase(chunk) == 0 ||
               there_.uses[chunk] == 0;
    }
    return false;
  }

  const PlanProblem& problem_;
  const Plan& plan_;
  There there_;
};

}  // namespace

bool NaivelyHolds(const Trace& trace, const PlanProblem& problem,
                  const Plan& plan) {
  return Naive(problem, plan).Holds(trace);
}

}  // namespace castor
