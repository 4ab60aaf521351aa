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

#include "collectives/engine/gradients/late_gradients.h"
#include "collectives/memory/held_moments.h"
#include "collectives/world/value_hash.h"

namespace castor::internal {
namespace {

// Of a Position: bits for what happens between two accesses.
constexpr int kPositionBits = 24;
constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

}  // namespace

// Finds whose gradients wait for the flush.
void LateGradients::SetUpWaiting(const SealOptions& declared) {
  if (!EndsWithAllGrads(declared.held)) return;
  // In place, a gradient holds a copy that other ranks may drop: only where
  // all copies stay.
  if (model_.grads_in_place()) {
    std::vector<int64_t> copies(memory_.plan().problem.slots.size(), 0);
    for (const int32_t slot_class : memory_.plan().problem.param_class) {
      if (slot_class != kNoSlotClass) ++copies[static_cast<size_t>(slot_class)];
    }
    for (size_t k = 0; k < copies.size(); ++k) {
      if (copies[k] > memory_.plan().problem.slots[k]) return;
    }
  }
  rules_.to_flush.resize(model_.chunks(), false);
  for (const ParamId param : declared.held.back().grads) {
    const ChunkId chunk = model_.chunk_of(param);
    if (chunk.valid()) rules_.to_flush[chunk.index()] = true;
  }
}

// Whether it is the next access to a gradient, before any use.
bool LateGradients::PlannedNext(const Access& grad) const {
  for (const Access& access : memory_.manager().PlannedBeforeUse()) {
    if (access.kind == AccessKind::kUse || access.kind == AccessKind::kUseEnd) {
      continue;
    }
    return access == grad;
  }
  return false;
}

// Orders what happens to gradients among the accesses of the step.
uint64_t LateGradients::Position() {
  return (uint64_t{memory_.manager().trace().size()} << kPositionBits) +
         ++events_;
}

// Reduces what waits, in the order of chunks, zeros where only others have it.
// Puts the accesses of the planned step into the trace, alike on all ranks.
Status LateGradients::FlushWaiting() {
  if (memory_.manager().as_planned()) {
    // All ranks have followed the plan so far, and left the same open.
    const std::vector<ChunkId> open = reducer_.open();
    if (open.empty()) return OkStatus();
    memory_.manager().DepartFromPlan(open.front());
  }
  CASTOR_ASSIGN_OR_RETURN(const std::vector<uint64_t> agreed, AgreeOnWaiting());
  const std::vector<LateAccess> late = AccessesToInsert(agreed);
  for (size_t c = 0; c < model_.chunks(); ++c) {
    if (agreed[2 * c] == 0) continue;
    const ChunkId chunk(static_cast<int32_t>(c));
    if (reducer_.of(chunk).state == GradState::kNone) {
      CASTOR_RETURN_IF_ERROR(memory_.WithEnough(OpenZeros(chunk)));
    } else if (positions_[c].complete_at == 0) {
      reducer_.WaitForWriters(chunk);
    }
    Reduce(chunk);
  }
  memory_.manager().InsertGrads(late);
  return OkStatus();
}

// Two words of each chunk, of which the greatest of any rank counts: when the
// gradient was complete, and how long before the end of time opened.
Result<std::vector<uint64_t>> LateGradients::AgreeOnWaiting() {
  const uint64_t now = Position();
  const size_t chunks = model_.chunks();
  ValueHash hash;
  for (const Access& access : memory_.manager().trace()) {
    hash.Add(static_cast<int>(access.kind));
    hash.Add(access.chunk.value());
  }
  std::vector<uint64_t> words(2 * chunks + 2);
  for (const ChunkId chunk : reducer_.open()) {
    const auto& [opened_at, complete_at] = positions_[chunk.index()];
    words[2 * chunk.index()] = complete_at > 0 ? complete_at : now;
    words[2 * chunk.index() + 1] = kNever - opened_at;
  }
  // And of the uses, which are alike where hash and complement are.
  words[2 * chunks] = hash.value();
  words[2 * chunks + 1] = ~hash.value();
  CASTOR_RETURN_IF_ERROR(words_.GreatestOf(words, "gradients to reduce"));
  if (words[2 * chunks] == ~words[2 * chunks + 1]) return words;
  return health_.Fail(FailedPrecondition(fmt::format(
      "the ranks use different parameters in step {}: this one has made {} "
      "accesses to chunks, others have made other ones; parameters that are "
      "sharded are acquired alike on all ranks",
      progress_.number(), memory_.manager().trace().size())));
}

std::vector<LateAccess> LateGradients::AccessesToInsert(
    const std::vector<uint64_t>& agreed) const {
  const Trace& trace = memory_.manager().trace();
  const size_t chunks = model_.chunks();
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
    const bool had = agreed[2 * c] > 0;
    if (!had && (!rules_.to_flush[c] || span.reduced)) continue;
    const uint64_t opened = had ? kNever - agreed[2 * c + 1] : kNever;
    if (model_.grads_in_place()) {
      // The place is that of the parameters, until their last use.
      span.open = std::min(span.open, opened);
      if (span.open == kNever) continue;
    } else {
      // From the start, whatever uses and gradients come in which order.
      span.open = span.reduced ? opened : position(flushed_at_);
    }
    span.close = had ? std::max(span.close, agreed[2 * c]) : end;
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

}  // namespace castor::internal
