// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How gathered copies follow the plan: what it has at each access, the borders
// of steps and of evaluations.

#include "placement/simulation/gathered_copies.h"

namespace castor::internal {

void GatheredCopies::Adopt(const Trace& trace, const Plan& plan) {
  planned_trace_ = trace;
  plan_ = plan;
  initial_.assign(copies_.size(), false);
  for (const ChunkId chunk : plan.initial) initial_[chunk.index()] = true;
  initial_shards_.assign(copies_.size(), false);
  for (const ChunkId chunk : plan.initial_shards) {
    initial_shards_[chunk.index()] = true;
  }
}

void GatheredCopies::Begin(AccessKind kind, ChunkId chunk) {
  if (evaluating_) return;
  const size_t moment = accesses_++;
  if (!planned()) return;
  if (moment >= planned_trace_.size() ||
      planned_trace_[moment] != Access{kind, chunk}) {
    diverged_ = true;
    ++counts_.divergences;
    DropUnusedPrefetches(chunk);
    return;
  }
  MakeMoves(2 * moment);
}

void GatheredCopies::Served() {
  if (!evaluating_ && planned()) MakeMoves(2 * (accesses_ - 1) + 1);
}

void GatheredCopies::DropUnusedPrefetches(ChunkId wanted) {
  if (!source_->cancellable()) return;
  for (size_t c = 0; c < copies_.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    const Copy& copy = copies_[c];
    if (chunk != wanted && copy.there && copy.pins == 0 && !copy.used &&
        copy.cause == RunCause::kPrefetch) {
      Drop(chunk);
    }
  }
}

void GatheredCopies::MakeMoves(size_t slice) {
  for (int32_t m = plan_->first_move[slice]; m < plan_->first_move[slice + 1];
       ++m) {
    const Move& move = plan_->moves[static_cast<size_t>(m)];
    const Copy& copy = copies_[move.chunk.index()];
    switch (move.kind) {
      case MoveKind::kGather:
        // Without a slot the access itself will ask, and say what is held.
        if (!copy.there) Gather(move.chunk, move.cause).IgnoreError();
        break;
      case MoveKind::kRelease:
        if (copy.there && copy.pins == 0) Drop(move.chunk);
        break;
      case MoveKind::kFetchShard:
        if (!copy.there) FetchShard(move.chunk, move.cause);
        break;
      case MoveKind::kDropShard:
        if (shards_.has(move.chunk)) shards_.Drop(move.chunk);
        break;
    }
  }
}

void GatheredCopies::BeginEvaluation() {
  evaluating_ = true;
  for (size_t c = 0; c < copies_.size(); ++c) {
    before_evaluation_[c] = copies_[c].there;
  }
}

void GatheredCopies::EndEvaluation() {
  evaluating_ = false;
  if (!planned()) return;
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (copies_[c].there && copies_[c].pins == 0 && !before_evaluation_[c]) {
      Drop(ChunkId(static_cast<int32_t>(c)));
    }
  }
  const auto restore = [this](ChunkId chunk) {
    if (before_evaluation_[chunk.index()] && !copies_[chunk.index()].there &&
        pool_.free_slots(param_class(chunk)) > 0) {
      Gather(chunk, RunCause::kPrefetch).IgnoreError();
    }
  };
  // What is used first comes back first.
  for (size_t i = accesses_; i < planned_trace_.size(); ++i) {
    restore(planned_trace_[i].chunk);
  }
  for (size_t c = 0; c < copies_.size(); ++c) {
    restore(ChunkId(static_cast<int32_t>(c)));
  }
}

bool GatheredCopies::EndStep() {
  const bool shorter = planned() && accesses_ != planned_trace_.size();
  counts_.divergences += shorter;
  const bool as_planned = planned() && !shorter;
  accesses_ = 0;
  diverged_ = false;
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (problem_->survives_step[c]) continue;
    const ChunkId chunk(static_cast<int32_t>(c));
    if (copies_[c].there) Drop(chunk);
    if (shards_.has(chunk)) shards_.Drop(chunk);
  }
  return !as_planned;
}

void GatheredCopies::BeginStep() {
  if (!plan_) return;
  for (size_t c = 0; c < copies_.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    if (copies_[c].there && !initial_[c]) Drop(chunk);
    if (!initial_shards_[c] && shards_.has(chunk)) shards_.Drop(chunk);
  }
  for (size_t k = 0; k < pool_.classes(); ++k) {
    shards_.Hold(static_cast<int32_t>(k), plan_->ShardSlots(k));
  }
  for (const ChunkId chunk : plan_->initial_shards) {
    FetchShard(chunk, RunCause::kPrefetch);
  }
  for (const ChunkId chunk : plan_->initial) {
    if (!copies_[chunk.index()].there) {
      Gather(chunk, RunCause::kPrefetch).IgnoreError();
    }
  }
}

}  // namespace castor::internal
