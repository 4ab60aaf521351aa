// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Leases that end where their holders end them (own_lease_ends): when a garbage
// collector gets to them, for one, which is at another time on every rank.
//
// All ranks must drop the same copies at the same accesses, because a gather is
// made by all. So a use has two ends. Its lease ends when the holder says so,
// on this rank. Its pin ends at an access, on all ranks alike:
//
//   as planned    where the recorded step had the end, at the next access
//   else          where a slot is needed, and all ranks say that it has ended;
//                 at the latest with the step, the evaluation, or all copies
//
// The trace of a step that is recorded has the latest end of any rank, on which
// ranks agree when the step ends.
//
// A copy that is dropped with leases on it leaves its slot to them (Leftover).
// Ranks go on counting that slot as free, so another is added to the pool in
// its place, within the budget, and stays.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "offload/memory_manager.h"

namespace castor {

int64_t MemoryManager::FreeSlots(int32_t slot_class) const {
  int64_t free = options_.device->free_slots(slot_class) -
                 extra_slots_[static_cast<size_t>(slot_class)];
  for (const Leftover& leftover : leftovers_) {
    free += leftover.slot.slot_class == slot_class;
  }
  return free;
}

Status MemoryManager::BackSlots(int32_t slot_class, int64_t slots,
                                std::optional<ChunkId> wanted_for) {
  const bool alone = options_.source->DecidesAlone();
  while (options_.device->free_slots(slot_class) <
         std::min(slots, FreeSlots(slot_class))) {
    Status added = options_.add_slot(slot_class);
    if (!added.ok() && alone && wanted_for.has_value() &&
        DropOne(slot_class, *wanted_for)) {
      continue;
    }
    if (!added.ok()) {
      added = added.WithContext(
          "leases that outlive their use in the recorded step hold slots that "
          "are needed: end them sooner, or hold less at once");
      if (!alone) options_.source->Failed(added);
      return added;
    }
    ++extra_slots_[static_cast<size_t>(slot_class)];
    ++stats_.extra_slots;
  }
  return OkStatus();
}

Result<bool> MemoryManager::MakeSlots(int32_t slot_class) {
  if (!own_ends() && !options_.grow_slots) return false;
  const TierPool& pool = *options_.device;
  const Bytes more = pool.slot_class(slot_class).slot_bytes;
  const bool grows = options_.grow_slots &&
                     pool.stats().reserved + more <= pool.stats().budget;
  words_.assign(1, grows ? 1 : 0);
  for (const Copy& copy : copies_) {
    if (copy.traced > 0) words_.push_back(copy.traced_ended);
    if (copy.untraced > 0) words_.push_back(copy.untraced_ended);
  }
  CASTOR_RETURN_IF_ERROR(options_.source->LeastOfRanks(words_));
  bool made = false;
  auto word = words_.begin() + 1;
  for (size_t c = 0; c < copies_.size(); ++c) {
    Copy& copy = copies_[c];
    const auto end = [&](int& pins, int& ended) {
      if (pins == 0) return;
      const int over = std::min(pins, static_cast<int>(*word++));
      pins -= over;
      ended -= over;
      if (options_.problem.param_class[c] == kNoSlotClass) return;
      Unpin(copy, over);
      made |= over > 0 && copy.pins == 0 &&
              options_.problem.param_class[c] == slot_class;
    };
    end(copy.traced, copy.traced_ended);
    end(copy.untraced, copy.untraced_ended);
  }
  if (made) return true;
  if (words_[0] == 0) return false;
  if (Status added = options_.add_slot(slot_class); !added.ok()) {
    if (!options_.source->DecidesAlone()) options_.source->Failed(added);
    return added;
  }
  ++options_.problem.slots[static_cast<size_t>(slot_class)];
  ++stats_.grown_slots;
  return true;
}

void MemoryManager::NoteUse(ChunkPin& pin) {
  Copy& copy = copies_[pin.chunk_.index()];
  if (param_class(pin.chunk_) != kNoSlotClass) ++copy.leases;
  if (pin.traced_) {
    pin.use_ = {traced_epoch_, uses_.size()};
    copy.open.push_back(uses_.size());
    uses_.push_back({pin.chunk_, trace_.size()});
    ++copy.traced;
  } else {
    pin.use_ = {untraced_epoch_, 0};
    ++copy.untraced;
  }
}

void MemoryManager::NoteLeaseEnd(const ChunkPin& pin, Event end) {
  const ChunkId chunk = pin.chunk_;
  Copy& copy = copies_[chunk.index()];
  if (param_class(chunk) == kNoSlotClass) {
    options_.source->DirectUsed(chunk, std::move(end));
  } else if (copy.slot.data == pin.data_ && copy.slot.valid()) {
    AddUser(copy.users, std::move(end));
    CASTOR_CHECK_GT(copy.leases, 0);
    --copy.leases;
  } else {
    const auto left = std::find_if(
        leftovers_.begin(), leftovers_.end(),
        [&](const Leftover& l) { return l.slot.data == pin.data_; });
    CASTOR_CHECK(left != leftovers_.end());
    AddUser(left->users, std::move(end));
    if (--left->leases == 0) {
      options_.device->Give(left->slot, AllOf(left->users));
      leftovers_.erase(left);
      RecordTierBytes();
    }
  }
  if (!pin.traced_) {
    copy.untraced_ended += pin.use_.epoch == untraced_epoch_;
  } else if (pin.use_.epoch == traced_epoch_) {
    OpenUse& use = uses_[pin.use_.index];
    use.ended = static_cast<int64_t>(trace_.size());
    copy.traced_ended += !use.in_trace && !use.unpinned;
  }
}

void MemoryManager::FollowEnds() {
  while (own_ends() && as_planned() && trace_.size() < planned_trace_.size() &&
         planned_trace_[trace_.size()].kind == AccessKind::kUseEnd &&
         IsPlain(planned_trace_, trace_.size())) {
    const ChunkId chunk = planned_trace_[trace_.size()].chunk;
    Record(AccessKind::kUseEnd, chunk);
    Copy& copy = copies_[chunk.index()];
    CASTOR_CHECK(!copy.open.empty());
    OpenUse& use = uses_[copy.open.front()];
    copy.open.erase(copy.open.begin());
    use.in_trace = true;
    // Unless its pin has ended before, where others needed slots.
    if (copy.traced > static_cast<int>(copy.open.size())) {
      --copy.traced;
      if (use.ended >= 0 && copy.traced_ended > 0) --copy.traced_ended;
      if (param_class(chunk) != kNoSlotClass) Unpin(copy, 1);
    }
    Served();
  }
}

void MemoryManager::EndUntraced() {
  if (!own_ends()) return;
  for (size_t c = 0; c < copies_.size(); ++c) {
    Copy& copy = copies_[c];
    if (options_.problem.param_class[c] != kNoSlotClass) {
      Unpin(copy, copy.untraced);
    }
    copy.untraced = copy.untraced_ended = 0;
  }
  ++untraced_epoch_;
}

void MemoryManager::EndAllUses() {
  if (!own_ends()) return;
  EndUntraced();
  for (size_t c = 0; c < copies_.size(); ++c) {
    EndUsesOf(ChunkId(static_cast<int32_t>(c)));
  }
}

void MemoryManager::EndUsesOf(ChunkId chunk) {
  Copy& copy = copies_[chunk.index()];
  if (param_class(chunk) != kNoSlotClass) {
    Unpin(copy, copy.traced + copy.untraced);
  }
  copy.traced = copy.traced_ended = 0;
  copy.untraced = copy.untraced_ended = 0;
  for (const size_t use : copy.open) uses_[use].unpinned = true;
}

void MemoryManager::ForgetUses() {
  for (Copy& copy : copies_) copy.open.clear();
  uses_.clear();
  ++traced_epoch_;
}

std::vector<MemoryManager::OpenUse> MemoryManager::UsesOf(
    const StepTrace& step) const {
  constexpr size_t kNone = ~size_t{0};
  struct Queue {  // of a chunk's open uses, in `uses`
    size_t first = kNone;
    size_t last = kNone;
  };
  std::vector<OpenUse> uses;
  std::vector<size_t> next;  // by use: behind it in its chunk's queue
  std::vector<Queue> open(copies_.size());
  auto own = step.lease_ends.begin();
  for (size_t i = 0; i < step.accesses.size(); ++i) {
    const auto [kind, chunk] = step.accesses[i];
    if (!IsPlain(step.accesses, i)) continue;
    Queue& of_chunk = open[chunk.index()];
    if (kind == AccessKind::kUse) {
      OpenUse use;
      use.chunk = chunk;
      use.begun = i;
      if (own != step.lease_ends.end() && static_cast<size_t>(own->use) == i) {
        use.ended = (own++)->before;
      }
      (of_chunk.first == kNone ? of_chunk.first : next[of_chunk.last]) =
          uses.size();
      of_chunk.last = uses.size();
      uses.push_back(use);
      next.push_back(kNone);
    } else if (of_chunk.first != kNone) {
      OpenUse& use = uses[of_chunk.first];
      of_chunk.first = next[of_chunk.first];
      if (use.ended < 0) use.ended = static_cast<int64_t>(i);
    }
  }
  return uses;
}

std::vector<LeaseEnd> MemoryManager::OwnLeaseEnds() const {
  const auto all = static_cast<int64_t>(planned_trace_.size());
  struct Uses {
    std::vector<int64_t> own;      // when leases ended, in order
    std::vector<int32_t> moments;  // by their order
    std::vector<int64_t> ends;     // of these, in the trace
  };
  std::vector<Uses> uses(copies_.size());
  for (const OpenUse& use : last_uses_) {
    uses[use.chunk.index()].own.push_back(use.ended >= 0 ? use.ended : all);
  }
  for (int64_t i = 0; i < all; ++i) {
    const auto [kind, chunk] = planned_trace_[static_cast<size_t>(i)];
    if (!IsPlain(planned_trace_, static_cast<size_t>(i))) continue;
    Uses& of = uses[chunk.index()];
    if (kind == AccessKind::kUse) of.moments.push_back(static_cast<int32_t>(i));
    if (kind == AccessKind::kUseEnd) of.ends.push_back(i);
  }
  const auto same = [this](int64_t a, int64_t b) {
    return std::all_of(
        planned_trace_.begin() + std::min(a, b),
        planned_trace_.begin() + std::max(a, b),
        [](const Access& at) { return at.kind == AccessKind::kUseEnd; });
  };
  std::vector<LeaseEnd> ends;
  for (Uses& of : uses) {
    if (of.own.size() != of.ends.size()) continue;  // the step had no plan
    std::sort(of.own.begin(), of.own.end());
    // Leases of one chunk are alike. An end at a time that the trace has is not
    // told, whichever lease ended then.
    std::vector<int64_t> own;
    std::vector<size_t> left;
    for (size_t o = 0, t = 0; o < of.own.size() || t < of.ends.size();) {
      const bool both = o < of.own.size() && t < of.ends.size();
      if (both && same(of.own[o], of.ends[t])) {
        ++o, ++t;
      } else if (t == of.ends.size() || (both && of.own[o] < of.ends[t])) {
        own.push_back(of.own[o++]);
      } else {
        left.push_back(t++);
      }
    }
    for (size_t k = 0; k < left.size(); ++k) {
      if (own[k] > of.moments[left[k]]) continue;
      // A lease would end before it begins: all are told, in order.
      own = of.own;
      left.resize(own.size());
      std::iota(left.begin(), left.end(), size_t{0});
      break;
    }
    for (size_t k = 0; k < left.size(); ++k) {
      ends.push_back({of.moments[left[k]], static_cast<int32_t>(own[k])});
    }
  }
  std::sort(ends.begin(), ends.end(),
            [](const LeaseEnd& a, const LeaseEnd& b) { return a.use < b.use; });
  return ends;
}

Status MemoryManager::InsertEnds() {
  // The latest end of any rank, as the least of what is before zero.
  const auto now = static_cast<int64_t>(trace_.size());
  words_.clear();
  for (const OpenUse& use : uses_) {
    if (!use.in_trace) words_.push_back(use.ended >= 0 ? -use.ended : -now);
  }
  CASTOR_RETURN_IF_ERROR(options_.source->LeastOfRanks(words_));
  std::vector<LateAccess> ends;
  ends.reserve(words_.size());
  auto word = words_.begin();
  for (const OpenUse& use : uses_) {
    if (use.in_trace) continue;
    auto after = static_cast<size_t>(-*word++);
    // A copy goes with the gradient that was in its place.
    for (size_t i = use.begun; grad_in_place(use.chunk) && i < after; ++i) {
      if (trace_[i] == Access{AccessKind::kUseEnd, use.chunk} &&
          !IsPlain(trace_, i)) {
        after = i;
      }
    }
    ends.push_back({after, AccessKind::kUseEnd, use.chunk});
  }
  std::sort(ends.begin(), ends.end(),
            [](const LateAccess& a, const LateAccess& b) {
              return std::pair(a.after, a.chunk) < std::pair(b.after, b.chunk);
            });
  InsertLate(ends);
  return OkStatus();
}

}  // namespace castor
