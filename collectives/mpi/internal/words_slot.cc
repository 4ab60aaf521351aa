// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/mpi/internal/words_slot.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace castor::internal {
namespace {

constexpr size_t kSlots = 8;
constexpr size_t kMostText = 1000;

struct Line {
  std::atomic<bool> matters;
  std::atomic<uint64_t> turn;  // of all that was said
  std::atomic<size_t> size;
  std::array<std::atomic<char>, kMostText> text;
};

// Written in turn, so that one is whole while the other is written.
struct Slot {
  std::atomic<bool> taken;
  std::atomic<int> current;  // -1: nothing to say
  std::array<Line, 2> lines;
};

// A handler reaches nothing but what is static. All zero at the start.
std::array<Slot, kSlots> slots;
std::atomic<uint64_t> turns;

// Null where nothing was said.
const Line* LineOf(const Slot& slot) {
  if (!slot.taken.load(std::memory_order_acquire)) return nullptr;
  const int current = slot.current.load(std::memory_order_acquire);
  return current < 0 ? nullptr : &slot.lines[static_cast<size_t>(current)];
}

void WriteLine(const Line& line, int fd) {
  std::array<char, kMostText + 1> text;
  const size_t size = line.size.load(std::memory_order_relaxed);
  for (size_t i = 0; i < size; ++i) {
    text[i] = line.text[i].load(std::memory_order_relaxed);
  }
  text[size] = '\n';
  // Nothing can be done about a line that cannot be written.
  if (write(fd, text.data(), size + 1) < 0) return;
}

}  // namespace

WordsSlot::WordsSlot() {
  for (size_t i = 0; i < kSlots; ++i) {
    if (slots[i].taken.exchange(true)) continue;
    slots[i].current.store(-1);
    slot_ = static_cast<int>(i);
    return;
  }
}

WordsSlot::~WordsSlot() {
  if (slot_ < 0) return;
  Slot& slot = slots[static_cast<size_t>(slot_)];
  slot.current.store(-1);
  slot.taken.store(false);
}

void WordsSlot::Say(std::string_view text, WordsWeight weight) {
  if (slot_ < 0) return;
  Slot& slot = slots[static_cast<size_t>(slot_)];
  const int next = slot.current.load(std::memory_order_relaxed) == 0 ? 1 : 0;
  Line& line = slot.lines[static_cast<size_t>(next)];
  const size_t size = std::min(text.size(), kMostText);
  for (size_t i = 0; i < size; ++i) {
    line.text[i].store(text[i], std::memory_order_relaxed);
  }
  line.size.store(size, std::memory_order_relaxed);
  line.matters.store(weight == WordsWeight::kMatters,
                     std::memory_order_relaxed);
  line.turn.store(turns.fetch_add(1) + 1, std::memory_order_relaxed);
  slot.current.store(next, std::memory_order_release);
}

void WordsSlot::Hush() {
  if (slot_ >= 0) slots[static_cast<size_t>(slot_)].current.store(-1);
}

void WriteWords(int fd) {
  const Line* last = nullptr;
  bool any_matters = false;
  for (const Slot& slot : slots) {
    const Line* const line = LineOf(slot);
    if (line == nullptr) continue;
    if (line->matters.load(std::memory_order_relaxed)) {
      any_matters = true;
      WriteLine(*line, fd);
    }
    if (last == nullptr || line->turn.load(std::memory_order_relaxed) >
                               last->turn.load(std::memory_order_relaxed)) {
      last = line;
    }
  }
  if (!any_matters && last != nullptr) WriteLine(*last, fd);
}

}  // namespace castor::internal
