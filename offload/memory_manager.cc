// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory_manager.h"

#include <fmt/format.h>

#include <utility>

#include "chunk/base/check.h"
#include "chunk/text/units_text.h"
#include "placement/policy/next_use_policy.h"

namespace castor {

MemoryManager::MemoryManager(MemoryManagerOptions options)
    : options_(std::move(options)),
      copies_(options_.problem.param_class.size()),
      grad_open_(options_.problem.param_class.size(), false),
      initial_(options_.problem.param_class.size(), false),
      initial_shards_(options_.problem.param_class.size(), false),
      shards_(options_.device, &options_.problem),
      before_evaluation_(options_.problem.param_class.size(), false),
      extra_slots_(options_.problem.slots.size(), 0),
      stall_(std::make_shared<StallCounters>()) {}

Result<ChunkPin> MemoryManager::Acquire(ChunkId chunk, Lane& lane) {
  const bool traced = Traces();
  if (traced) Record(AccessKind::kUse, chunk);
  if (last_used_.valid() && chunk != last_used_) forward_ = chunk > last_used_;
  last_used_ = chunk;

  ChunkPin pin;
  Event ready;
  RunCause cause = RunCause::kDemand;
  if (param_class(chunk) == kNoSlotClass) {
    pin.data_ = options_.source->DirectData(chunk);
    ready = options_.source->DirectReady(chunk);
    cause = RunCause::kOptimizer;
  } else {
    if (Status status = PinCopy(chunk); !status.ok()) {
      if (traced) NotServed();
      return status;
    }
    Copy& copy = copies_[chunk.index()];
    pin.data_ = copy.slot.data;
    copy.ready.Settle();
    ready = copy.ready;
    cause = copy.cause;
  }
  ++pins_held_;
  pin.manager_ = this;
  pin.lane_ = &lane;
  pin.chunk_ = chunk;
  pin.traced_ = traced;
  if (own_ends()) NoteUse(pin);
  // What is fetched ahead is queued before anybody waits.
  if (traced) Served();
  WaitOn(lane, ready, chunk, cause);
  if (options_.recorder != nullptr) {
    pin.begin_ns_ = std::make_shared<int64_t>(0);
    lane.NoteTime(options_.clock,
                  [begin = pin.begin_ns_](int64_t ns) { *begin = ns; });
  }
  return pin;
}

void MemoryManager::EndUse(ChunkPin& pin) {
  const ChunkId chunk = pin.chunk_;
  // A use and its end are both in the trace or neither, also where one of them
  // lies in an evaluation.
  const bool traced = pin.traced_ && !own_ends();
  if (traced) Record(AccessKind::kUseEnd, chunk);
  if (options_.recorder != nullptr) {
    RunEvent event;
    event.kind = RunEventKind::kUse;
    event.rank = options_.rank;
    event.step = step_;
    event.moment = static_cast<int32_t>(moment());
    event.chunk = chunk.value();
    pin.lane_->NoteTime(options_.clock,
                        [event, begin = std::move(pin.begin_ns_),
                         recorder = options_.recorder](int64_t ns) mutable {
                          event.begin_ns = *begin;
                          event.end_ns = ns;
                          recorder->Record(event);
                        });
  }
  Event end = pin.lane_->Record();
  if (!pin.others_.empty()) [[unlikely]] {
    std::vector<Event> ends = {std::move(end)};
    for (Lane* lane : pin.others_) ends.push_back(lane->Record());
    pin.others_.clear();
    end = AllOf(ends);
  }
  if (own_ends()) {
    NoteLeaseEnd(pin, std::move(end));
  } else if (param_class(chunk) == kNoSlotClass) {
    options_.source->DirectUsed(chunk, std::move(end));
  } else {
    Copy& copy = copies_[chunk.index()];
    AddUser(copy.users, std::move(end));
    Unpin(copy, 1);
  }
  --pins_held_;
  if (traced) Served();
}

void MemoryManager::AddUser(std::vector<Event>& users, Event end) {
  if (end.done() && end.status().ok()) return;
  std::erase_if(users,
                [](const Event& e) { return e.done() && e.status().ok(); });
  users.push_back(std::move(end));
}

void MemoryManager::Unpin(Copy& copy, int pins) {
  if (pins == 0) return;
  CASTOR_CHECK_GE(copy.pins, pins);
  copy.pins -= pins;
  if (copy.pins == 0) Transition(copy, CopyEvent::kUnpinLast);
}

Result<Slot> MemoryManager::OpenGrad(ChunkId chunk, bool traced) {
  CASTOR_CHECK(!grad_open_[chunk.index()]);
  CASTOR_CHECK(!evaluating());
  CASTOR_CHECK(traced || !as_planned());
  if (grad_in_place(chunk)) return OpenInPlace(chunk, traced);
  if (traced) Record(AccessKind::kGradOpen, chunk);
  Result<Slot> slot = TakeSlot(options_.problem.passing_class(chunk), chunk,
                               SlotHold::kPassing, traced);
  if (!slot.ok()) {
    if (traced) NotServed();
    return slot;
  }
  grad_open_[chunk.index()] = true;
  if (traced) Served();
  return slot;
}

void MemoryManager::CloseGrad(ChunkId chunk, const Slot& slot, Event free_after,
                              bool traced) {
  CASTOR_CHECK(grad_open_[chunk.index()]);
  CASTOR_CHECK(!evaluating());
  CASTOR_CHECK(traced || !as_planned());
  if (grad_in_place(chunk)) {
    return CloseInPlace(chunk, std::move(free_after), traced);
  }
  if (traced) Record(AccessKind::kGradClose, chunk);
  grad_open_[chunk.index()] = false;
  ReturnSlot(slot, std::move(free_after));
  if (traced) Served();
}

int64_t MemoryManager::KeptForGrads(int32_t slot_class) const {
  if (as_planned()) return 0;
  int64_t kept = 0;
  for (size_t c = 0; c < options_.grad_slots_kept.size(); ++c) {
    kept += options_.grad_slots_kept[c] && !grad_open_[c] &&
            options_.problem.grad_class[c] == slot_class;
  }
  return kept;
}

void MemoryManager::KeepForGrads(ChunkId wanted) {
  if (options_.grad_slots_kept.empty()) return;
  for (size_t k = 0; k < options_.problem.slots.size(); ++k) {
    const auto slot_class = static_cast<int32_t>(k);
    const int64_t kept = KeptForGrads(slot_class);
    while (FreeSlots(slot_class) < kept &&
           (DropOne(slot_class, wanted) || shards_.GiveOne(slot_class))) {
    }
  }
}

Result<Slot> MemoryManager::BorrowSlot(ChunkId chunk) {
  return TakeSlot(options_.problem.passing_class(chunk), chunk,
                  SlotHold::kPassing, false);
}

void MemoryManager::ReturnSlot(const Slot& slot, Event free_after) {
  options_.device->Give(slot, std::move(free_after));
  RecordTierBytes();
}

Result<Slot> MemoryManager::TakeSlot(int32_t slot_class, ChunkId wanted_for,
                                     SlotHold hold, bool asks, int64_t kept) {
  // More than one goes where others wait for slots of the class.
  while (FreeSlots(slot_class) <= kept) {
    if (DropOne(slot_class, wanted_for) || shards_.GiveOne(slot_class)) {
      continue;
    }
    if (asks) {
      CASTOR_ASSIGN_OR_RETURN(const bool made, MakeSlots(slot_class));
      if (made) continue;
    }
    const SlotClass& shape = options_.device->slot_class(slot_class);
    return Infeasible(fmt::format(
        "chunk {} needs a gathered slot of {} and all {} are held: {}; {}hold "
        "less at once",
        wanted_for.value(), FormatBytes(shape.slot_bytes), shape.slots,
        HeldChunks(slot_class),
        options_.grow_slots ? "" : "declare this moment at Seal(), or "));
  }
  CASTOR_RETURN_IF_ERROR(BackSlots(slot_class, 1, wanted_for));
  CASTOR_ASSIGN_OR_RETURN(Slot slot, options_.device->Take(slot_class, hold));
  RecordTierBytes();
  return slot;
}

bool MemoryManager::DropOne(int32_t slot_class, ChunkId wanted_for) {
  const auto of_class = static_cast<size_t>(slot_class);
  if (of_class >= resident_.size() || resident_[of_class].empty()) return false;
  Drop(FirstStepVictim(resident_[of_class], wanted_for, forward_),
       RunCause::kRoom);
  return true;
}

Status MemoryManager::Gather(ChunkId chunk, RunCause cause, int64_t moment) {
  CASTOR_ASSIGN_OR_RETURN(
      Slot slot,
      TakeSlot(param_class(chunk), chunk, SlotHold::kSettled,
               cause == RunCause::kDemand, KeptForGrads(param_class(chunk))));
  Copy& copy = copies_[chunk.index()];
  Transition(copy, CopyEvent::kFetch);
  copy.from_shard = shards_.has(chunk);
  if (copy.from_shard) {
    copy.ready = options_.source->GatherFrom(
        shards_.data(chunk), shards_.ready(chunk), chunk, slot, cause, moment);
    shards_.AddReader(chunk, copy.ready);
  } else {
    copy.ready = options_.source->Gather(chunk, slot, cause, moment);
    CountFetch(chunk, cause);
  }
  copy.slot = std::move(slot);
  copy.cause = cause;
  copy.used = false;
  // The copy counts as there from now on: whoever uses it waits for the event.
  Transition(copy, CopyEvent::kReady);
  ++stats_.gathers;
  if (cause == RunCause::kPrefetch) ++stats_.prefetched_gathers;
  if (options_.traffic != nullptr) ++options_.traffic->Of(chunk).gathers;
  return OkStatus();
}

void MemoryManager::FetchShard(ChunkId chunk, RunCause cause) {
  if (shards_.has(chunk) || !shards_.has_place(chunk)) return;
  // The source knows one load of a chunk: from here on it is this one.
  copies_[chunk.index()].from_shard = true;
  const ShardPlaces::Place place = shards_.Take(chunk);
  shards_.SetReady(chunk, options_.source->FetchShard(chunk, place.data,
                                                      place.free_after, cause));
  CountFetch(chunk, cause);
}

void MemoryManager::CountFetch(ChunkId chunk, RunCause cause) {
  ++stats_.fetches;
  if (cause == RunCause::kPrefetch) ++stats_.prefetched_fetches;
  if (options_.traffic != nullptr) ++options_.traffic->Of(chunk).fetches;
}

void MemoryManager::Drop(ChunkId chunk, RunCause cause) {
  Copy& copy = copies_[chunk.index()];
  Transition(copy, CopyEvent::kRelease);
  if (copy.cause == RunCause::kPrefetch && !copy.used && !copy.from_shard &&
      !copy.ready.done() && options_.source->Cancellable(chunk) &&
      options_.source->Cancel(chunk)) {
    ++stats_.cancelled_gathers;
    copy.ready = std::move(copy.slot.free_after);
  }
  GiveSlot(copy);
  ++stats_.releases;
  RecordInstant(RunEventKind::kRelease, chunk, cause);
  RecordTierBytes();
}

void MemoryManager::GiveSlot(Copy& copy) {
  copy.users.push_back(std::move(copy.ready));
  if (copy.leases > 0) {
    leftovers_.push_back(
        {copy.slot, std::exchange(copy.leases, 0), std::move(copy.users)});
  } else {
    options_.device->Give(copy.slot, AllOf(copy.users));
  }
  copy.users.clear();
  copy.slot = Slot();
  copy.ready = Event();
}

void MemoryManager::Transition(Copy& copy, CopyEvent event) {
  Result<CopyState> next = NextState(copy.state, event);
  CASTOR_CHECK(next.ok());
  const bool was_resident = copy.state == CopyState::kResident;
  copy.state = *next;
  const bool is_resident = copy.state == CopyState::kResident;
  if (was_resident == is_resident) return;
  const ChunkId chunk(static_cast<int32_t>(&copy - copies_.data()));
  const auto of_class = static_cast<size_t>(param_class(chunk));
  if (of_class >= resident_.size()) resident_.resize(of_class + 1);
  if (is_resident) {
    resident_[of_class].push_back(chunk);
  } else {
    std::erase(resident_[of_class], chunk);
  }
}

Status MemoryManager::PinCopy(ChunkId chunk) {
  Copy& copy = copies_[chunk.index()];
  if (copy.state == CopyState::kAbsent) {
    CASTOR_RETURN_IF_ERROR(Gather(chunk, RunCause::kDemand, moment()));
  }
  Transition(copy, CopyEvent::kPin);
  if (!copy.used && copy.cause == RunCause::kPrefetch && !copy.ready.done()) {
    options_.source->Raise(chunk);
  }
  copy.used = true;
  ++copy.pins;
  return OkStatus();
}

Result<Slot> MemoryManager::OpenInPlace(ChunkId chunk, bool traced) {
  if (traced) Record(AccessKind::kUse, chunk);
  if (last_used_.valid() && chunk != last_used_) forward_ = chunk > last_used_;
  last_used_ = chunk;
  Slot place;
  if (param_class(chunk) == kNoSlotClass) {
    place.data = options_.source->DirectData(chunk);
  } else {
    if (Status status = PinCopy(chunk); !status.ok()) {
      if (traced) NotServed();
      return status;
    }
    const Copy& copy = copies_[chunk.index()];
    place.data = copy.slot.data;
    place.size = copy.slot.size;
  }
  if (traced) {
    Served();
    Record(AccessKind::kGradOpen, chunk);
  }
  grad_open_[chunk.index()] = true;
  if (traced) Served();
  return place;
}

Event MemoryManager::UsesDone(ChunkId chunk) const {
  const Copy& copy = copies_[chunk.index()];
  CASTOR_CHECK(copy.state == CopyState::kPinned);
  std::vector<Event> events = copy.users;
  events.push_back(copy.ready);
  return AllOf(events);
}

void MemoryManager::CloseInPlace(ChunkId chunk, Event free_after, bool traced) {
  if (traced) Record(AccessKind::kUseEnd, chunk);
  grad_open_[chunk.index()] = false;
  const bool direct = param_class(chunk) == kNoSlotClass;
  Copy& copy = copies_[chunk.index()];
  if (direct) {
    options_.source->DirectUsed(chunk, std::move(free_after));
  } else {
    // Also where the plan wants the slot at once.
    copy.users.push_back(std::move(free_after));
    Unpin(copy, 1);
  }
  if (traced) {
    Served();
    Record(AccessKind::kGradClose, chunk);
  }
  if (!direct && copy.state == CopyState::kResident) {
    Drop(chunk, RunCause::kStale);
  }
  if (traced) Served();
}

}  // namespace castor
