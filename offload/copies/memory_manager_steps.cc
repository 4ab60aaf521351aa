// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How a MemoryManager follows the plan: the trace of a step, what the plan has
// at each moment of it, the borders of steps and of evaluations.

#include <algorithm>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "offload/memory_manager.h"
#include "placement/planner/plan_record.h"
#include "placement/planner/step_planner.h"

namespace castor {

std::span<const Access> MemoryManager::PlannedBeforeUse() const {
  if (!as_planned() || trace_.size() >= planned_trace_.size()) {
    return {};
  }
  const auto next =
      planned_trace_.begin() + static_cast<std::ptrdiff_t>(trace_.size());
  auto end = next;
  for (; end != planned_trace_.end(); ++end) {
    const bool plain = IsPlain(
        planned_trace_, static_cast<size_t>(end - planned_trace_.begin()));
    if (plain && (end->kind == AccessKind::kUse || !own_ends())) break;
  }
  return {next, end};
}

bool MemoryManager::IsPlain(const Trace& trace, size_t moment) const {
  const Access& access = trace[moment];
  if (access.kind != AccessKind::kUse && access.kind != AccessKind::kUseEnd) {
    return false;
  }
  // One of a gradient in place comes right before what it is for.
  const AccessKind of_grad = access.kind == AccessKind::kUse
                                 ? AccessKind::kGradOpen
                                 : AccessKind::kGradClose;
  return !grad_in_place(access.chunk) || moment + 1 == trace.size() ||
         trace[moment + 1] != Access{of_grad, access.chunk};
}

void MemoryManager::InsertGrads(std::span<const LateAccess> accesses) {
  CASTOR_CHECK(!as_planned());
  InsertLate(accesses);
}

void MemoryManager::InsertLate(std::span<const LateAccess> accesses) {
  const Trace traced = std::exchange(trace_, {});
  std::vector<LeaseChange> leases = std::exchange(leases_, {});
  auto lease = leases.begin();
  auto late = accesses.begin();
  std::vector<size_t> moved_to;  // what came behind so many
  for (size_t i = 0; i <= traced.size(); ++i) {
    for (; late != accesses.end() && late->after == i; ++late) {
      const bool opens = late->kind == AccessKind::kGradOpen;
      if (grad_in_place(late->chunk) && late->kind != AccessKind::kUseEnd) {
        trace_.push_back(
            {opens ? AccessKind::kUse : AccessKind::kUseEnd, late->chunk});
      }
      trace_.push_back({late->kind, late->chunk});
    }
    moved_to.push_back(trace_.size());
    if (i == traced.size()) break;
    for (; lease != leases.end() && static_cast<size_t>(lease->moment) == i;
         ++lease) {
      leases_.push_back({static_cast<int32_t>(trace_.size()), lease->bytes});
    }
    trace_.push_back(traced[i]);
  }
  CASTOR_CHECK(late == accesses.end());
  for (OpenUse& use : uses_) {
    use.begun = moved_to[use.begun];
    if (use.ended >= 0) {
      use.ended =
          static_cast<int64_t>(moved_to[static_cast<size_t>(use.ended)]);
    }
  }
}

void MemoryManager::Record(AccessKind kind, ChunkId chunk) {
  if (own_ends() && kind != AccessKind::kUseEnd) FollowEnds();
  const size_t moment = trace_.size();
  const Access access{kind, chunk};
  trace_.push_back(access);
  if (leased_ != NotedLeased()) NoteLeased(moment, leased_);
  if (!planned_ || diverged_) return;
  if (moment >= planned_trace_.size() || planned_trace_[moment] != access) {
    return DepartFromPlan(chunk);
  }
  MakeMoves(2 * moment);
}

void MemoryManager::DepartFromPlan(ChunkId wanted) {
  CASTOR_CHECK(as_planned());
  diverged_ = true;
  ++stats_.divergences;
  RecordInstant(RunEventKind::kDivergence, wanted, RunCause::kDemand);
  DropUnusedPrefetches(wanted);
  KeepForGrads(wanted);
}

bool MemoryManager::Traces() {
  if (evaluating()) return false;
  if (in_step_ || std::ssize(trace_) < most_outside_step()) return true;
  untraced_ = true;
  return false;
}

void MemoryManager::EnterStep() {
  if (untraced_ && (own_ends() || pins_held_ == 0)) AbandonStep();
  in_step_ = true;
}

void MemoryManager::NotServed() {
  trace_.pop_back();
  if (!leases_.empty() &&
      static_cast<size_t>(leases_.back().moment) == trace_.size()) {
    leases_.pop_back();
  }
}

void MemoryManager::SetLeased(Bytes bytes) {
  leased_ = bytes;
  if (evaluating()) return;
  if (trace_.empty()) {
    leased_before_ = std::max(leased_before_, bytes);
  } else if (bytes > NotedLeased()) {
    NoteLeased(trace_.size() - 1, bytes);
  }
}

void MemoryManager::NoteLeased(size_t moment, Bytes bytes) {
  if (!leases_.empty() &&
      static_cast<size_t>(leases_.back().moment) == moment) {
    leases_.pop_back();
  }
  if (bytes != NotedLeased()) {
    leases_.push_back({static_cast<int32_t>(moment), bytes});
  }
}

void MemoryManager::Served() {
  if (!planned_ || diverged_) return;
  MakeMoves(2 * (trace_.size() - 1) + 1);
}

void MemoryManager::MakeMoves(size_t slice) {
  for (int32_t m = plan_.first_move[slice]; m < plan_.first_move[slice + 1];
       ++m) {
    const Move& move = plan_.moves[static_cast<size_t>(m)];
    Copy& copy = copies_[move.chunk.index()];
    // An evaluation inside the step may have moved things: what the plan wants
    // may be so already, or not be possible.
    switch (move.kind) {
      case MoveKind::kGather:
        if (copy.state != CopyState::kAbsent) break;
        // Without a slot the access itself will ask, and say what is held.
        Gather(move.chunk, move.cause, moment()).IgnoreError();
        break;
      case MoveKind::kRelease:
        if (copy.state == CopyState::kResident) Drop(move.chunk, move.cause);
        break;
      case MoveKind::kFetchShard:
        if (copy.state == CopyState::kAbsent) {
          FetchShard(move.chunk, move.cause);
        }
        break;
      case MoveKind::kDropShard:
        if (shards_.has(move.chunk)) shards_.Drop(move.chunk);
        break;
    }
  }
}

Status MemoryManager::EndStep() {
  CASTOR_CHECK(own_ends() || pins_held_ == 0);
  CASTOR_CHECK_EQ(evaluating_, 0);
  if (own_ends()) {
    FollowEnds();
    EndAllUses();
    const bool recorded =
        !as_planned() || trace_.size() != planned_trace_.size();
    if (recorded) CASTOR_RETURN_IF_ERROR(InsertEnds());
    last_uses_.swap(uses_);
    ForgetUses();
  }
  // What was on lease before the first access belongs to the moment that lasts
  // until then.
  if (!trace_.empty() && leased_before_ > NotedLeased()) {
    NoteLeased(trace_.size() - 1, leased_before_);
  }
  leased_before_ = leased_;
  Status status;
  if (!planned_ || diverged_ || trace_.size() != planned_trace_.size()) {
    if (planned_ && !diverged_) {  // the step was shorter
      ++stats_.divergences;
      RecordInstant(RunEventKind::kDivergence, ChunkId(), RunCause::kNone);
    }
    status = AdoptTrace();
  }
  trace_.clear();
  trace_.reserve(planned_trace_.size());
  in_step_ = untraced_ = false;
  if (status.ok()) {
    last_leases_.swap(leases_);
  } else {
    last_uses_.clear();
  }
  leases_.clear();
  diverged_ = false;
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (copies_[c].state == CopyState::kResident &&
        !options_.problem.survives_step[c]) {
      Drop(ChunkId(static_cast<int32_t>(c)), RunCause::kStale);
    }
  }
  DropShards(options_.problem.survives_step);
  return status;
}

StepTrace MemoryManager::last_step() const {
  StepTrace step;
  step.accesses = planned_trace_;
  step.leases = last_leases_;
  step.lease_ends = OwnLeaseEnds();
  return step;
}

void MemoryManager::DropShards(const std::vector<bool>& kept) {
  for (size_t c = 0; c < copies_.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    if (!kept[c] && shards_.has(chunk)) shards_.Drop(chunk);
  }
}

Status MemoryManager::Adopt(const StepTrace& step) {
  CASTOR_CHECK(trace_.empty());
  CASTOR_CHECK_EQ(pins_held_, 0);
  CASTOR_CHECK_EQ(evaluating_, 0);
  trace_ = step.accesses;
  const Status status = AdoptTrace();
  trace_.clear();
  if (!status.ok()) return status;
  last_leases_ = step.leases;
  last_uses_ = own_ends() ? UsesOf(step) : std::vector<OpenUse>();
  return OkStatus();
}

Status MemoryManager::PlanTrace() {
  Result<StepPlan> made = PlanStep(options_.policy, trace_, options_.problem);
  if (!made.ok()) return made.status();
  plan_ = std::move(made->plan);
  certificate_ = std::move(made->certificate);
  return OkStatus();
}

Status MemoryManager::AdoptTrace() {
  planned_ = false;
  certificate_.reset();
  if (options_.planned != nullptr && *options_.planned == trace_) {
    plan_ = *options_.plan;
  } else {
    CASTOR_RETURN_IF_ERROR(PlanTrace());
  }
  planned_trace_ = std::move(trace_);
  initial_.assign(copies_.size(), false);
  first_use_.clear();
  for (ChunkId chunk : plan_.initial) {
    initial_[chunk.index()] = true;
    const auto use = std::find(planned_trace_.begin(), planned_trace_.end(),
                               Access{AccessKind::kUse, chunk});
    first_use_.push_back(
        use == planned_trace_.end() ? -1 : use - planned_trace_.begin());
  }
  initial_shards_.assign(copies_.size(), false);
  for (ChunkId chunk : plan_.initial_shards) {
    initial_shards_[chunk.index()] = true;
  }
  planned_ = true;
  RecordPlan();
  return OkStatus();
}

void MemoryManager::RecordPlan() const {
  if (options_.recorder == nullptr || !certificate_) return;
  std::vector<Bytes> slot_bytes;
  for (size_t k = 0; k < certificate_->classes.size(); ++k) {
    slot_bytes.push_back(
        options_.device->slot_class(static_cast<int32_t>(k)).slot_bytes);
  }
  RunPlanInfo info = RunPlanOf(*certificate_, options_.problem, slot_bytes,
                               planned_trace_.size());
  info.rank = options_.rank;
  info.step = step_;
  options_.recorder->AddPlan(info);
}

void MemoryManager::BeginStep(int32_t step) {
  CASTOR_CHECK_EQ(evaluating_, 0);
  step_ = step;
  if (!planned_) return;
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (copies_[c].state == CopyState::kResident && !initial_[c]) {
      Drop(ChunkId(static_cast<int32_t>(c)), RunCause::kRoom);
    }
  }
  DropShards(initial_shards_);
  for (size_t k = 0; k < options_.problem.slots.size(); ++k) {
    const auto slot_class = static_cast<int32_t>(k);
    const Status backed = BackSlots(slot_class, plan_.ShardSlots(k), {});
    // Fewer shards stay, where that is nobody else's affair.
    if (!backed.ok() && !options_.source->DecidesAlone()) return;
    shards_.Hold(slot_class, plan_.ShardSlots(k));
  }
  if (!plan_.shard_slots.empty()) RecordTierBytes();
  for (ChunkId chunk : plan_.initial_shards) {
    FetchShard(chunk, RunCause::kPrefetch);
  }
  for (size_t i = 0; i < plan_.initial.size(); ++i) {
    const ChunkId chunk = plan_.initial[i];
    if (copies_[chunk.index()].state == CopyState::kAbsent) {
      Gather(chunk, RunCause::kPrefetch, first_use_[i]).IgnoreError();
    }
  }
}

void MemoryManager::AbandonStep() {
  CASTOR_CHECK(own_ends() || pins_held_ == 0);
  EndAllUses();
  ForgetUses();
  trace_.clear();
  leases_.clear();
  leased_before_ = leased_;
  diverged_ = false;
  in_step_ = untraced_ = false;
  BeginStep(step_);
}

void MemoryManager::BeginEvaluation() {
  if (evaluating_++ > 0) return;
  for (size_t c = 0; c < copies_.size(); ++c) {
    before_evaluation_[c] = copies_[c].state != CopyState::kAbsent;
  }
}

void MemoryManager::EndEvaluation() {
  CASTOR_CHECK_GT(evaluating_, 0);
  if (--evaluating_ > 0) return;
  EndUntraced();
  if (!planned_ || diverged_) return;
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (copies_[c].state == CopyState::kResident && !before_evaluation_[c]) {
      Drop(ChunkId(static_cast<int32_t>(c)), RunCause::kRoom);
    }
  }
  const auto restore = [this](ChunkId chunk) {
    if (before_evaluation_[chunk.index()] &&
        copies_[chunk.index()].state == CopyState::kAbsent &&
        FreeSlots(param_class(chunk)) > 0) {
      Gather(chunk, RunCause::kPrefetch, moment()).IgnoreError();
    }
  };
  // What is used first comes back first.
  for (size_t i = trace_.size(); i < planned_trace_.size(); ++i) {
    restore(planned_trace_[i].chunk);
  }
  for (size_t c = 0; c < copies_.size(); ++c) {
    restore(ChunkId(static_cast<int32_t>(c)));
  }
}

}  // namespace castor
