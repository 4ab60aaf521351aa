// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a MemoryManager holds, and how it lets go of it: pins, copies that are
// no longer wanted, the end.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "chunk/base/check.h"
#include "offload/lanes/failure_log.h"
#include "offload/memory_manager.h"

namespace castor {
namespace {

// Between two points of a stream: what they take themselves is less.
constexpr int64_t kLeastDeviceStallNs = 5'000;

}  // namespace

void ChunkPin::AlsoUsedOn(Lane& lane) {
  if (&lane == lane_ || std::ranges::find(others_, &lane) != others_.end()) {
    return;
  }
  others_.push_back(&lane);
}

ChunkPin& ChunkPin::operator=(ChunkPin&& other) noexcept {
  if (this == &other) return *this;
  Release();
  manager_ = std::exchange(other.manager_, nullptr);
  lane_ = other.lane_;
  chunk_ = other.chunk_;
  traced_ = other.traced_;
  data_ = std::exchange(other.data_, nullptr);
  use_ = other.use_;
  begin_ns_ = std::move(other.begin_ns_);
  others_ = std::move(other.others_);
  return *this;
}

void ChunkPin::GiveBack() {
  manager_->EndUse(*this);
  manager_ = nullptr;
  data_ = nullptr;
}

MemoryManager::~MemoryManager() {
  CASTOR_CHECK_EQ(pins_held_, 0);
  EndAllUses();
  for (Copy& copy : copies_) {
    if (copy.state == CopyState::kResident) GiveSlot(copy);
  }
}

void MemoryManager::DropAll(RunCause cause) {
  EndAllUses();
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (copies_[c].state == CopyState::kResident) {
      Drop(ChunkId(static_cast<int32_t>(c)), cause);
    }
  }
  shards_.Clear();
}

void MemoryManager::DropStale(const std::vector<bool>& chunks) {
  BeginEvaluation();  // which remembers what there is
  for (size_t c = 0; c < copies_.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    if (!chunks[c]) continue;
    if (own_ends()) EndUsesOf(chunk);
    if (copies_[c].state == CopyState::kResident) Drop(chunk, RunCause::kStale);
    if (shards_.has(chunk)) shards_.Drop(chunk);
  }
}

void MemoryManager::DropUnusedPrefetches(ChunkId wanted) {
  for (size_t c = 0; c < copies_.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    const Copy& copy = copies_[c];
    // Others take part in a gather that cannot be taken back: it is paid for.
    if (chunk != wanted && copy.state == CopyState::kResident && !copy.used &&
        copy.cause == RunCause::kPrefetch &&
        options_.source->Cancellable(chunk)) {
      Drop(chunk, RunCause::kRoom);
    }
  }
}

Status MemoryManager::Drain() {
  const FailureLog failures;
  const auto wait = [&](const Event& event) {
    if (Status ended = event.Wait(); !ended.ok()) failures.Add(ended);
  };
  for (const Copy& copy : copies_) {
    wait(copy.ready);
    for (const Event& user : copy.users) wait(user);
  }
  return failures.Summary();
}

Status MemoryManager::Close() {
  const bool grads =
      std::find(grad_open_.begin(), grad_open_.end(), true) != grad_open_.end();
  if (pinned() || grads) {
    return FailedPrecondition(fmt::format(
        "{} uses of chunks are not over, and in slots are held: {}; release "
        "them before the end",
        pins_held_, HeldChunks(kNoSlotClass)));
  }
  const Status drained = Drain();
  DropAll(RunCause::kNone);
  return drained;
}

std::string MemoryManager::HeldChunks(int32_t slot_class) const {
  std::string text;
  for (size_t c = 0; c < copies_.size(); ++c) {
    const bool all = slot_class == kNoSlotClass;
    if (copies_[c].state == CopyState::kPinned &&
        (all || options_.problem.param_class[c] == slot_class)) {
      text +=
          fmt::format("{}chunk {} (parameters)", text.empty() ? "" : ", ", c);
    }
    if (grad_open_[c] &&
        (all || options_.problem.grad_class[c] == slot_class)) {
      text += fmt::format("{}chunk {} (gradient)", text.empty() ? "" : ", ", c);
    }
  }
  return text.empty() ? "nothing" : text;
}

std::array<StallSum, kRunCauses> MemoryManager::stalls() const {
  std::array<StallSum, kRunCauses> sums;
  for (size_t c = 0; c < sums.size(); ++c) {
    sums[c] = {stall_->count[c].load(), stall_->ns[c].load()};
  }
  return sums;
}

void MemoryManager::WaitOn(Lane& lane, const Event& ready, ChunkId chunk,
                           RunCause cause) {
  if (ready.done()) return lane.Wait(ready);
  const bool on_host = lane.runs_on_host();
  if (!on_host && options_.recorder == nullptr) {
    // Nobody times the stream. A caller whom the lane blocks waits all the
    // same.
    const int64_t begin_ns = options_.clock->NowNs();
    lane.Wait(ready);
    const int64_t waited_ns = options_.clock->NowNs() - begin_ns;
    if (waited_ns >= kLeastDeviceStallNs) {
      stall_->ns[static_cast<size_t>(cause)] += waited_ns;
      ++stall_->count[static_cast<size_t>(cause)];
    }
    return;
  }
  // What the notes before and behind one wait share. Most accesses have a wait,
  // so both notes hold one block.
  struct Stall {
    int64_t begin_ns = -1;  // -1: the lane found nothing to wait for
    int64_t least_ns = 0;
    RunEvent event;
    RunRecorder* recorder = nullptr;
    std::shared_ptr<StallCounters> counters;
    Event ready;  // on the host: asked when the lane gets there
  };
  auto stall = std::make_shared<Stall>();
  stall->least_ns = on_host ? 0 : kLeastDeviceStallNs;
  stall->recorder = options_.recorder;
  stall->counters = stall_;
  if (on_host) stall->ready = ready;
  RunEvent& event = stall->event;
  event.kind = RunEventKind::kStall;
  event.cause = cause;
  event.rank = options_.rank;
  event.step = step_;
  event.moment = static_cast<int32_t>(moment());
  event.chunk = chunk.value();
  lane.NoteTime(options_.clock, [stall, on_host](int64_t ns) {
    if (!on_host || !stall->ready.done()) stall->begin_ns = ns;
    stall->ready = Event();
  });
  lane.Wait(ready);
  lane.NoteTime(options_.clock, [stall = std::move(stall)](int64_t ns) {
    const int64_t waited_ns = ns - stall->begin_ns;
    if (stall->begin_ns < 0 || waited_ns < stall->least_ns) return;
    stall->event.begin_ns = stall->begin_ns;
    stall->event.end_ns = ns;
    const auto cause = static_cast<size_t>(stall->event.cause);
    stall->counters->ns[cause] += waited_ns;
    ++stall->counters->count[cause];
    if (stall->recorder != nullptr) stall->recorder->Record(stall->event);
  });
}

void MemoryManager::RecordTierBytes() {
  if (options_.recorder == nullptr) return;
  RunEvent event;
  event.kind = RunEventKind::kTierBytes;
  event.rank = options_.rank;
  event.step = step_;
  event.to = Tier::kDevice;
  event.bytes = options_.device->stats().in_use.count();
  event.begin_ns = event.end_ns = options_.clock->NowNs();
  options_.recorder->Record(event);
}

void MemoryManager::RecordInstant(RunEventKind kind, ChunkId chunk,
                                  RunCause cause) {
  if (options_.recorder == nullptr) return;
  RunEvent event;
  event.kind = kind;
  event.cause = cause;
  event.rank = options_.rank;
  event.step = step_;
  event.moment = static_cast<int32_t>(moment());
  event.chunk = chunk.value();
  event.begin_ns = event.end_ns = options_.clock->NowNs();
  options_.recorder->Record(event);
}

}  // namespace castor
