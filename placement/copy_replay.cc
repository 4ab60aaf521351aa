// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/copy_replay.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "chunk/base/check.h"
#include "placement/next_use_policy.h"

namespace castor {

CopyReplay::CopyReplay(const PlanProblem& problem,
                       std::vector<Bytes> slot_bytes)
    : problem_(problem),
      slot_bytes_(std::move(slot_bytes)),
      copies_(problem.param_class.size()),
      free_(problem.slots),
      shard_slots_(problem.slots.size(), 0) {
  CASTOR_CHECK_EQ(slot_bytes_.size(), problem.slots.size());
  TakeCounts();
}

void CopyReplay::Step(const Trace& trace, const Plan* plan,
                      std::span<const ChunkId> refreshed) {
  for (size_t moment = 0; moment < trace.size(); ++moment) {
    if (plan != nullptr) MakeMoves(*plan, 2 * moment);
    Serve(trace[moment]);
    if (plan != nullptr) MakeMoves(*plan, 2 * moment + 1);
  }
  // The update makes them stale.
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (copies_[c].there && !problem_.survives_step[c]) {
      Drop(ChunkId(static_cast<int32_t>(c)));
    }
  }
  DropShards(problem_.survives_step);
  for (const ChunkId chunk : refreshed) {
    const int32_t slot_class = problem_.passing_class(chunk);
    TakeSlot(slot_class, chunk);
    GiveSlot(slot_class);
  }
  if (plan != nullptr) Begin(*plan);
}

void CopyReplay::Begin(const Plan& plan) {
  std::vector<bool> wanted(copies_.size(), false);
  for (const ChunkId chunk : plan.initial) wanted[chunk.index()] = true;
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (copies_[c].there && !wanted[c]) Drop(ChunkId(static_cast<int32_t>(c)));
  }
  wanted.assign(copies_.size(), false);
  for (const ChunkId chunk : plan.initial_shards) wanted[chunk.index()] = true;
  DropShards(wanted);
  for (size_t k = 0; k < shard_slots_.size(); ++k) {
    const auto slot_class = static_cast<int32_t>(k);
    for (; shard_slots_[k] > plan.ShardSlots(k); --shard_slots_[k]) {
      GiveSlot(slot_class);
    }
    for (; shard_slots_[k] < plan.ShardSlots(k); ++shard_slots_[k]) {
      TakeSlot(slot_class, ChunkId());
    }
  }
  for (const ChunkId chunk : plan.initial_shards) FetchShard(chunk);
  for (const ChunkId chunk : plan.initial) {
    if (!copies_[chunk.index()].there) Gather(chunk);
  }
}

CopyReplay::Counts CopyReplay::TakeCounts() {
  const std::vector<int64_t> none(copies_.size(), 0);
  return std::exchange(counts_, {none, none});
}

void CopyReplay::Serve(const Access& access) {
  const ChunkId chunk = access.chunk;
  Copy& copy = copies_[chunk.index()];
  const bool direct = problem_.param_class[chunk.index()] == kNoSlotClass;
  const int32_t grad_class = problem_.grad_class[chunk.index()];
  switch (access.kind) {
    case AccessKind::kUse:
      if (last_used_.valid() && chunk != last_used_) {
        forward_ = chunk > last_used_;
      }
      last_used_ = chunk;
      if (direct) return;
      if (!copy.there) Gather(chunk);
      ++copy.pins;
      return;
    case AccessKind::kUseEnd:
      if (!direct) --copy.pins;
      return;
    case AccessKind::kGradOpen:
      if (grad_class != kNoSlotClass) TakeSlot(grad_class, chunk);
      return;
    case AccessKind::kGradClose:
      if (grad_class != kNoSlotClass) {
        GiveSlot(grad_class);
      } else if (copy.there) {
        Drop(chunk);
      }
      return;
  }
}

void CopyReplay::MakeMoves(const Plan& plan, size_t slice) {
  for (int32_t m = plan.first_move[slice]; m < plan.first_move[slice + 1];
       ++m) {
    const Move& move = plan.moves[static_cast<size_t>(m)];
    Copy& copy = copies_[move.chunk.index()];
    switch (move.kind) {
      case MoveKind::kGather:
        if (!copy.there) Gather(move.chunk);
        break;
      case MoveKind::kRelease:
        if (copy.there) Drop(move.chunk);
        break;
      case MoveKind::kFetchShard:
        if (!copy.there) FetchShard(move.chunk);
        break;
      case MoveKind::kDropShard:
        copy.shard = false;
        break;
    }
  }
}

void CopyReplay::Gather(ChunkId chunk) {
  TakeSlot(problem_.param_class[chunk.index()], chunk);
  Copy& copy = copies_[chunk.index()];
  copy.there = true;
  ++counts_.gathers[chunk.index()];
  counts_.loads[chunk.index()] += !copy.shard;
}

void CopyReplay::FetchShard(ChunkId chunk) {
  Copy& copy = copies_[chunk.index()];
  counts_.loads[chunk.index()] += !copy.shard;
  copy.shard = true;
}

void CopyReplay::DropShards(const std::vector<bool>& kept) {
  for (size_t c = 0; c < copies_.size(); ++c) {
    copies_[c].shard = copies_[c].shard && kept[c];
  }
}

void CopyReplay::Drop(ChunkId chunk) {
  copies_[chunk.index()].there = false;
  GiveSlot(problem_.param_class[chunk.index()]);
}

void CopyReplay::TakeSlot(int32_t slot_class, ChunkId wanted_for) {
  int64_t& free = free_[static_cast<size_t>(slot_class)];
  if (free == 0) {
    candidates_.clear();
    for (size_t c = 0; c < copies_.size(); ++c) {
      if (copies_[c].there && copies_[c].pins == 0 &&
          problem_.param_class[c] == slot_class) {
        candidates_.push_back(ChunkId(static_cast<int32_t>(c)));
      }
    }
    CASTOR_CHECK(!candidates_.empty());
    Drop(FirstStepVictim(candidates_, wanted_for, forward_));
  }
  --free;
  in_use_ += slot_bytes_[static_cast<size_t>(slot_class)];
  peak_ = std::max(peak_, in_use_);
}

void CopyReplay::GiveSlot(int32_t slot_class) {
  ++free_[static_cast<size_t>(slot_class)];
  in_use_ -= slot_bytes_[static_cast<size_t>(slot_class)];
}

}  // namespace castor
