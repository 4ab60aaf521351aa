// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a MemoryManager holds, and how it lets go of it: pins, copies that are
// no longer wanted, the end.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "chunk/base/check.h"
#include "offload/failure_log.h"
#include "offload/memory_manager.h"

namespace castor {

ChunkPin& ChunkPin::operator=(ChunkPin&& other) noexcept {
  if (this == &other) return *this;
  Release();
  manager_ = std::exchange(other.manager_, nullptr);
  lane_ = other.lane_;
  chunk_ = other.chunk_;
  traced_ = other.traced_;
  data_ = std::exchange(other.data_, nullptr);
  begin_ns_ = std::move(other.begin_ns_);
  return *this;
}

void ChunkPin::GiveBack() {
  manager_->EndUse(*this);
  manager_ = nullptr;
  data_ = nullptr;
}

MemoryManager::~MemoryManager() {
  CASTOR_CHECK_EQ(pins_held_, 0);
  for (Copy& copy : copies_) {
    if (copy.state == CopyState::kResident) GiveSlot(copy);
  }
}

void MemoryManager::DropAll(RunCause cause) {
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (copies_[c].state == CopyState::kResident) {
      Drop(ChunkId(static_cast<int32_t>(c)), cause);
    }
  }
  shards_.Clear();
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

}  // namespace castor
