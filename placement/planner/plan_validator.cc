// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/planner/plan_validator.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

namespace castor {
namespace {

class Replay {
 public:
  Replay(const PlanProblem& problem, const Plan& plan)
      : problem_(problem),
        plan_(plan),
        resident_(problem.param_class.size(), false),
        shard_there_(problem.param_class.size(), false),
        shards_held_(problem.slots.size(), 0),
        pins_(problem.param_class.size(), 0),
        grad_open_(problem.param_class.size(), false),
        held_(problem.slots.size(), 0),
        left_(problem.slots) {}

  // From now on something else takes slots as just before the access at
  // `moment`, and then as after it.
  void Before(size_t moment) {
    for (size_t c = 0; c < left_.size(); ++c) {
      left_[c] = SlotsFor(c) - problem_.TakenDuring(c, moment);
    }
  }
  void After(size_t moment) {
    for (size_t c = 0; c < left_.size(); ++c) {
      left_[c] = SlotsFor(c) - problem_.TakenAfter(c, moment);
    }
  }

  // That no class holds more than is left of it.
  Status CheckHeld() const {
    for (size_t c = 0; c < left_.size(); ++c) {
      if (held_[c] > left_[c]) return TooMany(c);
    }
    return OkStatus();
  }

  Status Gather(ChunkId chunk, bool from_shard) {
    CASTOR_RETURN_IF_ERROR(CheckChunk(chunk));
    if (from_shard != shard_there_[chunk.index()]) {
      return Internal(
          fmt::format("chunk {} is gathered {} its shard's copy, "
                      "which is {}there",
                      chunk.value(), from_shard ? "from" : "beside",
                      from_shard ? "not " : ""));
    }
    const int32_t slot_class = problem_.param_class[chunk.index()];
    if (slot_class == kNoSlotClass) {
      return Internal(fmt::format("chunk {} needs no slot", chunk.value()));
    }
    if (resident_[chunk.index()]) {
      return Internal(
          fmt::format("chunk {} is gathered already", chunk.value()));
    }
    CASTOR_RETURN_IF_ERROR(TakeSlot(slot_class));
    resident_[chunk.index()] = true;
    return OkStatus();
  }

  Status GatherInitial(ChunkId chunk) {
    CASTOR_RETURN_IF_ERROR(CheckChunk(chunk));
    return Gather(chunk, shard_there_[chunk.index()]);
  }

  Status FetchShard(ChunkId chunk) {
    CASTOR_RETURN_IF_ERROR(CheckChunk(chunk));
    const int32_t slot_class = problem_.param_class[chunk.index()];
    if (slot_class == kNoSlotClass || problem_.ShardCost(chunk) <= 0) {
      return Internal(fmt::format("no copy of chunk {}'s shard may be kept",
                                  chunk.value()));
    }
    if (shard_there_[chunk.index()]) {
      return Internal(fmt::format("there is a copy of chunk {}'s shard already",
                                  chunk.value()));
    }
    const size_t c = Index(slot_class);
    const int64_t places = plan_.ShardSlots(c) * problem_.ShardsPerSlot(c);
    if (++shards_held_[c] > places) {
      return Internal(
          fmt::format("class {} holds copies of {} shards in {} "
                      "places",
                      c, shards_held_[c], places));
    }
    shard_there_[chunk.index()] = true;
    return OkStatus();
  }

  Status DropShard(ChunkId chunk) {
    CASTOR_RETURN_IF_ERROR(CheckChunk(chunk));
    if (!shard_there_[chunk.index()]) {
      return Internal(
          fmt::format("there is no copy of chunk {}'s shard", chunk.value()));
    }
    shard_there_[chunk.index()] = false;
    --shards_held_[Index(problem_.param_class[chunk.index()])];
    return OkStatus();
  }

  Status Make(const Move& move) {
    switch (move.kind) {
      case MoveKind::kGather:
        return Gather(move.chunk, move.from_shard);
      case MoveKind::kRelease:
        return Release(move.chunk);
      case MoveKind::kFetchShard:
        return FetchShard(move.chunk);
      case MoveKind::kDropShard:
        return DropShard(move.chunk);
    }
    return Internal("unknown move");
  }

  // Whoever counts on a copy in the next step must not count on what this one
  // left open. And the update makes shards stale: of what it touches, no copy
  // may be counted on.
  Status CheckEnd() const {
    for (size_t c = 0; c < shard_there_.size(); ++c) {
      if (pins_[c] > 0) {
        return Internal(fmt::format("chunk {} is still in use", c));
      }
      if (grad_open_[c]) {
        return Internal(
            fmt::format("the gradient of chunk {} is still open", c));
      }
      if (!shard_there_[c] || problem_.survives_step[c]) continue;
      return Internal(fmt::format(
          "a copy of chunk {}'s shard is kept past the update of the chunk",
          c));
    }
    return OkStatus();
  }

  Status Release(ChunkId chunk) {
    CASTOR_RETURN_IF_ERROR(CheckChunk(chunk));
    if (!resident_[chunk.index()]) {
      return Internal(fmt::format("chunk {} has no copy", chunk.value()));
    }
    if (pins_[chunk.index()] > 0) {
      return Internal(fmt::format("chunk {} is in use", chunk.value()));
    }
    resident_[chunk.index()] = false;
    --held_[Index(problem_.param_class[chunk.index()])];
    return OkStatus();
  }

  Status Serve(const Access& access) {
    CASTOR_RETURN_IF_ERROR(CheckChunk(access.chunk));
    const size_t chunk = access.chunk.index();
    switch (access.kind) {
      case AccessKind::kUse:
        if (problem_.param_class[chunk] != kNoSlotClass && !resident_[chunk]) {
          return Internal(
              fmt::format("chunk {} is not gathered", access.chunk.value()));
        }
        ++pins_[chunk];
        return OkStatus();
      case AccessKind::kUseEnd:
        if (pins_[chunk] == 0) {
          return Internal(
              fmt::format("chunk {} is not in use", access.chunk.value()));
        }
        --pins_[chunk];
        return OkStatus();
      case AccessKind::kGradOpen:
        if (grad_open_[chunk]) {
          return Internal(
              fmt::format("the gradient of chunk {} is open already",
                          access.chunk.value()));
        }
        grad_open_[chunk] = true;
        if (problem_.grad_class[chunk] == kNoSlotClass) {
          return CheckInPlace(access.chunk);
        }
        return TakeSlot(problem_.grad_class[chunk]);
      case AccessKind::kGradClose:
        if (!grad_open_[chunk]) {
          return Internal(fmt::format("the gradient of chunk {} is not open",
                                      access.chunk.value()));
        }
        grad_open_[chunk] = false;
        if (problem_.grad_class[chunk] != kNoSlotClass) {
          --held_[Index(problem_.grad_class[chunk])];
        } else if (resident_[chunk]) {
          return Release(access.chunk);
        }
        return OkStatus();
    }
    return Internal("unknown access");
  }

 private:
  static size_t Index(int32_t slot_class) {
    return static_cast<size_t>(slot_class);
  }

  // Those that hold no shards.
  int64_t SlotsFor(size_t slot_class) const {
    return problem_.slots[slot_class] - plan_.ShardSlots(slot_class);
  }

  Status CheckChunk(ChunkId chunk) const {
    if (chunk.valid() && chunk.index() < resident_.size()) return OkStatus();
    return Internal(fmt::format("there is no chunk {}", chunk.value()));
  }

  Status CheckInPlace(ChunkId chunk) const {
    if (pins_[chunk.index()] > 0) return OkStatus();
    return Internal(fmt::format(
        "the gradient of chunk {} takes the place of parameters that are not "
        "in use",
        chunk.value()));
  }

  Status TakeSlot(int32_t slot_class) {
    const size_t c = Index(slot_class);
    return ++held_[c] <= left_[c] ? OkStatus() : TooMany(c);
  }

  Status TooMany(size_t slot_class) const {
    return Internal(fmt::format("class {} holds {} slots of {}", slot_class,
                                held_[slot_class], left_[slot_class]));
  }

  const PlanProblem& problem_;
  const Plan& plan_;
  std::vector<bool> resident_;
  std::vector<bool> shard_there_;
  std::vector<int64_t> shards_held_;  // by class
  std::vector<int> pins_;
  std::vector<bool> grad_open_;
  std::vector<int64_t> held_;  // by class, copies and gradients
  std::vector<int64_t> left_;  // by class, slots that nothing else takes
};

Status CheckShape(const Trace& trace, const PlanProblem& problem,
                  const Plan& plan) {
  for (const std::vector<int64_t>& taken : problem.slots_taken) {
    if (problem.slots_taken.size() != problem.slots.size() ||
        (!taken.empty() && taken.size() != trace.size())) {
      return Internal(
          fmt::format("plan: slots taken are given for {} classes of {}, and "
                      "for {} accesses of {}",
                      problem.slots_taken.size(), problem.slots.size(),
                      taken.size(), trace.size()));
    }
  }
  const size_t classes = problem.slots.size();
  const size_t chunks = problem.param_class.size();
  if ((!plan.shard_slots.empty() && plan.shard_slots.size() != classes) ||
      (!problem.shards_per_slot.empty() &&
       problem.shards_per_slot.size() != classes) ||
      (!problem.shard_cost.empty() && problem.shard_cost.size() != chunks)) {
    return Internal(fmt::format(
        "plan: slots for shards are given for {} classes, shards in them for "
        "{}, and their costs for {} chunks: there are {} classes and {} chunks",
        plan.shard_slots.size(), problem.shards_per_slot.size(),
        problem.shard_cost.size(), classes, chunks));
  }
  for (size_t c = 0; c < classes; ++c) {
    if (plan.ShardSlots(c) < 0 || plan.ShardSlots(c) > problem.slots[c]) {
      return Internal(fmt::format("plan: {} slots of {} of class {} for shards",
                                  plan.ShardSlots(c), problem.slots[c], c));
    }
  }
  if (plan.first_move.size() != 2 * trace.size() + 1 ||
      plan.first_move[0] != 0 ||
      static_cast<size_t>(plan.first_move.back()) != plan.moves.size()) {
    return Internal(
        fmt::format("plan: {} move offsets for {} accesses and {} moves",
                    plan.first_move.size(), trace.size(), plan.moves.size()));
  }
  for (size_t i = 0; i + 1 < plan.first_move.size(); ++i) {
    if (plan.first_move[i] > plan.first_move[i + 1]) {
      return Internal(
          fmt::format("plan: moves of moment {} end before they begin", i / 2));
    }
  }
  return OkStatus();
}

}  // namespace

Status ValidatePlan(const Trace& trace, const PlanProblem& problem,
                    const Plan& plan) {
  CASTOR_RETURN_IF_ERROR(CheckShape(trace, problem, plan));
  Replay replay(problem, plan);
  if (!trace.empty()) replay.Before(0);
  for (ChunkId chunk : plan.initial_shards) {
    if (Status s = replay.FetchShard(chunk); !s.ok()) {
      return s.WithContext("plan, before the step");
    }
  }
  for (ChunkId chunk : plan.initial) {
    if (Status s = replay.GatherInitial(chunk); !s.ok()) {
      return s.WithContext("plan, before the step");
    }
  }
  const auto make_moves = [&](size_t slice) {
    for (int32_t m = plan.first_move[slice]; m < plan.first_move[slice + 1];
         ++m) {
      const Move& move = plan.moves[static_cast<size_t>(m)];
      if (Status s = replay.Make(move); !s.ok()) {
        return s.WithContext(
            fmt::format("plan, moment {}, move {}", slice / 2, m));
      }
    }
    return OkStatus();
  };
  for (size_t i = 0; i < trace.size(); ++i) {
    replay.Before(i);
    CASTOR_RETURN_IF_ERROR(make_moves(2 * i));
    if (Status s = replay.Serve(trace[i]); !s.ok()) {
      return s.WithContext(fmt::format("plan, moment {} ({})", i,
                                       AccessKindName(trace[i].kind)));
    }
    replay.After(i);
    CASTOR_RETURN_IF_ERROR(make_moves(2 * i + 1));
    if (Status s = replay.CheckHeld(); !s.ok()) {
      return s.WithContext(fmt::format("plan, after moment {}", i));
    }
  }
  if (Status s = replay.CheckEnd(); !s.ok()) {
    return s.WithContext("plan, at the end of the step");
  }
  return OkStatus();
}

}  // namespace castor
