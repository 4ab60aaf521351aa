// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Gradients that some ranks lack, where parameters are sharded and no plan says
// when chunks are reduced: in the first step, and in the rest of one that
// departs from its plan.
//
// A trainer that may lack gradients declares that all are held together. Every
// gradient then has a slot that copies of parameters leave alone, and waits
// there for the flush. At the flush ranks ask each other which chunks any of
// them has, and reduce these chunks in order. All ranks put the same accesses
// into the trace: a gradient is open from the start of the micro-batch to the
// last use of its chunk, or to the flush where no rank has it. So the steps
// that follow have a place for each gradient, whichever rank has it when.
//
//   uses on all ranks   F0 F1 F2 | B2 B1 B0
//   rank 0 has             g2, g0      held to the flush
//   rank 1 has             g1          held to the flush
//   reduced at the flush   0, 1, 2     zeros where a rank has none
//   planned from then on   each of 0, 1, 2 behind its last use
//
// Without that declaration chunks are reduced as they are complete. Ranks then
// have gradients of the same chunks in these steps, or are refused.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/engine/zero_engine_impl.h"
#include "collectives/memory/held_moments.h"
#include "collectives/world/value_hash.h"

namespace castor {

void ZeroEngine::Impl::SetUpWaiting(const SealOptions& declared) {
  waits_.clear();
  if (!EndsWithAllGrads(declared.held)) return;
  // In place, a gradient holds a copy that other ranks may drop: only where
  // all copies stay.
  if (grads_in_place()) {
    std::vector<int64_t> copies(memory_.problem.slots.size(), 0);
    for (const int32_t slot_class : memory_.problem.param_class) {
      if (slot_class != kNoSlotClass) ++copies[static_cast<size_t>(slot_class)];
    }
    for (size_t k = 0; k < copies.size(); ++k) {
      if (copies[k] > memory_.problem.slots[k]) return;
    }
  }
  waits_.resize(layout_->chunks().size(), false);
  for (const ParamId param : declared.held.back().grads) {
    const ChunkId chunk = layout_->place(param).chunk;
    if (chunk.valid()) waits_[chunk.index()] = true;
  }
}

bool ZeroEngine::Impl::PlannedNext(const Access& grad) const {
  for (const Access& access : manager_->PlannedBeforeUse()) {
    if (access.kind == AccessKind::kUse || access.kind == AccessKind::kUseEnd) {
      continue;
    }
    return access == grad;
  }
  return false;
}

Result<Slot> ZeroEngine::Impl::OpenSlot(ChunkId chunk) {
  if (!WaitsForFlush()) return manager_->OpenGrad(chunk);
  CASTOR_ASSIGN_OR_RETURN(Slot slot, manager_->OpenGrad(chunk, false));
  grads_[chunk.index()].opened_at = Position();
  return slot;
}

// Two words of each chunk and two of the uses, of which the greatest counts:
// when its gradient was complete, and how long before the end of time opened.
Status ZeroEngine::Impl::FlushWaiting() {
  if (manager_->as_planned()) {
    // All ranks have followed the plan so far, and left the same open.
    const auto open = std::find_if(
        grads_.begin(), grads_.end(),
        [](const ChunkGrad& grad) { return grad.state == GradState::kOpen; });
    if (open == grads_.end()) return OkStatus();
    manager_->DepartFromPlan(
        ChunkId(static_cast<int32_t>(open - grads_.begin())));
  }
  constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  const uint64_t now = Position();
  const size_t chunks = grads_.size();
  internal::ValueHash hash;
  for (const Access& access : manager_->trace()) {
    hash.Add(static_cast<int>(access.kind));
    hash.Add(access.chunk.value());
  }
  agreed_words_.assign(2 * chunks + 2, 0);
  for (size_t c = 0; c < chunks; ++c) {
    const ChunkGrad& grad = grads_[c];
    if (grad.state != GradState::kOpen) continue;
    agreed_words_[2 * c] = grad.complete_at > 0 ? grad.complete_at : now;
    agreed_words_[2 * c + 1] = kNever - grad.opened_at;
  }
  agreed_words_[2 * chunks] = hash.value();
  agreed_words_[2 * chunks + 1] = ~hash.value();
  comm_->AllReduce(*comm_lane_, agreed_words_.data(),
                   Elements(std::ssize(agreed_words_)), DType::kU64,
                   ReduceOp::kMax,
                   {ChunkId(), Moment(), "gradients to reduce"});
  CASTOR_RETURN_IF_ERROR(comm_lane_->Record().Wait());
  if (agreed_words_[2 * chunks] != ~agreed_words_[2 * chunks + 1]) {
    return Fail(FailedPrecondition(fmt::format(
        "the ranks use different parameters in step {}: this one has made {} "
        "accesses to chunks, others have made other ones; parameters that are "
        "sharded are acquired alike on all ranks",
        step_ + 1, manager_->trace().size())));
  }
  const std::vector<LateAccess> late = AccessesToInsert();
  for (size_t c = 0; c < chunks; ++c) {
    if (agreed_words_[2 * c] == 0) continue;
    const ChunkId chunk(static_cast<int32_t>(c));
    ChunkGrad& grad = grads_[c];
    if (grad.state == GradState::kNone) {
      CASTOR_RETURN_IF_ERROR(WithEnough(OpenZeros(chunk)));
    } else if (grad.complete_at == 0) {
      WaitForWriters(grad);
    }
    ReduceChunk(chunk);
  }
  manager_->InsertGrads(late);
  return OkStatus();
}

std::vector<LateAccess> ZeroEngine::Impl::AccessesToInsert() const {
  constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  const Trace& trace = manager_->trace();
  const size_t chunks = grads_.size();
  const auto position = [](size_t accesses) {
    return uint64_t{accesses} << kPositionBits;
  };
  struct Span {
    uint64_t open = kNever;
    uint64_t close = 0;
    bool reduced = false;  // as planned, before the step departed from that
  };
  std::vector<Span> spans(chunks);
  ChunkId last;
  for (size_t i = flushed_at_; i < trace.size(); ++i) {
    const ChunkId chunk = trace[i].chunk;
    Span& span = spans[chunk.index()];
    if (trace[i].kind == AccessKind::kGradClose) {
      span = {kNever, 0, true};
    } else if (trace[i].kind == AccessKind::kUse) {
      // The last uses in a row.
      if (chunk != last || span.open == kNever) span.open = position(i + 1);
      last = chunk;
    } else if (trace[i].kind == AccessKind::kUseEnd) {
      span.close = position(i + 1);
    }
  }
  std::vector<std::pair<uint64_t, LateAccess>> placed;
  const auto place = [&](uint64_t at, AccessKind kind, size_t chunk) {
    placed.push_back({at,
                      {static_cast<size_t>(at >> kPositionBits), kind,
                       ChunkId(static_cast<int32_t>(chunk))}});
  };
  const uint64_t end = position(trace.size() + 1) - 1;  // on all ranks
  for (size_t c = 0; c < chunks; ++c) {
    Span span = spans[c];
    const bool had = agreed_words_[2 * c] > 0;
    if (!had && (!waits_[c] || span.reduced)) continue;
    const uint64_t opened = had ? kNever - agreed_words_[2 * c + 1] : kNever;
    if (grads_in_place()) {
      // The place is that of the parameters, until their last use.
      span.open = std::min(span.open, opened);
      if (span.open == kNever) continue;
    } else {
      // From the start, whatever uses and gradients come in which order.
      span.open = span.reduced ? opened : position(flushed_at_);
    }
    span.close = had ? std::max(span.close, agreed_words_[2 * c]) : end;
    if (opened != 0) place(span.open, AccessKind::kGradOpen, c);
    place(span.close, AccessKind::kGradClose, c);
  }
  // What is opened at a place comes before what is closed there.
  const auto key = [](const std::pair<uint64_t, LateAccess>& access) {
    return std::tuple(access.first, access.second.kind, access.second.chunk);
  };
  std::sort(placed.begin(), placed.end(),
            [&](const auto& a, const auto& b) { return key(a) < key(b); });
  std::vector<LateAccess> late;
  late.reserve(placed.size());
  for (const auto& [at, access] : placed) late.push_back(access);
  return late;
}

}  // namespace castor
