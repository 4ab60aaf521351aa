// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Gradients that are written over a chunk's parameters: to the plan a use of
// the chunk, after which there is no copy of it.

#include <utility>

#include "chunk/base/check.h"
#include "offload/memory_manager.h"

namespace castor {

Result<Slot> MemoryManager::OpenInPlace(ChunkId chunk) {
  Record(AccessKind::kUse, chunk);
  if (last_used_.valid() && chunk != last_used_) forward_ = chunk > last_used_;
  last_used_ = chunk;
  Slot place;
  if (param_class(chunk) == kNoSlotClass) {
    place.data = options_.source->DirectData(chunk);
  } else {
    Copy& copy = copies_[chunk.index()];
    if (copy.state == CopyState::kAbsent) {
      if (Status status = Gather(chunk, RunCause::kDemand, moment());
          !status.ok()) {
        NotServed();
        return status;
      }
    }
    Transition(copy, CopyEvent::kPin);
    if (!copy.used && copy.cause == RunCause::kPrefetch && !copy.ready.done()) {
      options_.source->Raise(chunk);
    }
    copy.used = true;
    ++copy.pins;
    place.data = copy.slot.data;
    place.size = copy.slot.size;
  }
  Served();
  Record(AccessKind::kGradOpen, chunk);
  grad_open_[chunk.index()] = true;
  Served();
  return place;
}

Event MemoryManager::UsesDone(ChunkId chunk) const {
  const Copy& copy = copies_[chunk.index()];
  CASTOR_CHECK(copy.state == CopyState::kPinned);
  std::vector<Event> events = copy.users;
  events.push_back(copy.ready);
  return AllOf(events);
}

void MemoryManager::CloseInPlace(ChunkId chunk, Event free_after) {
  Record(AccessKind::kUseEnd, chunk);
  grad_open_[chunk.index()] = false;
  const bool direct = param_class(chunk) == kNoSlotClass;
  Copy& copy = copies_[chunk.index()];
  if (direct) {
    options_.source->DirectUsed(chunk, std::move(free_after));
  } else {
    // Also where the plan wants the slot at once.
    copy.users.push_back(std::move(free_after));
    CASTOR_CHECK_GT(copy.pins, 0);
    if (--copy.pins == 0) Transition(copy, CopyEvent::kUnpinLast);
  }
  Served();
  Record(AccessKind::kGradClose, chunk);
  if (!direct && copy.state == CopyState::kResident) {
    Drop(chunk, RunCause::kStale);
  }
  Served();
}

}  // namespace castor
