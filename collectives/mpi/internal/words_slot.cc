// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/mpi/internal/words_slot.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

namespace castor::internal {
namespace {

constexpr size_t kSlots = 8;
constexpr size_t kMostText = 1000;

struct Line {
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

void WordsSlot::Say(std::string_view text) {
  if (slot_ < 0) return;
  Slot& slot = slots[static_cast<size_t>(slot_)];
  const int next = slot.current.load(std::memory_order_relaxed) == 0 ? 1 : 0;
  Line& line = slot.lines[static_cast<size_t>(next)];
  const size_t size = std::min(text.size(), kMostText);
  for (size_t i = 0; i < size; ++i) {
    line.text[i].store(text[i], std::memory_order_relaxed);
  }
  line.size.store(size, std::memory_order_relaxed);
  slot.current.store(next, std::memory_order_release);
}

void WriteWords(int fd) {
  for (const Slot& slot : slots) {
    if (!slot.taken.load(std::memory_order_acquire)) continue;
    const int current = slot.current.load(std::memory_order_acquire);
    if (current < 0) continue;
    const Line& line = slot.lines[static_cast<size_t>(current)];
    std::array<char, kMostText + 1> text;
    const size_t size = line.size.load(std::memory_order_relaxed);
    for (size_t i = 0; i < size; ++i) {
      text[i] = line.text[i].load(std::memory_order_relaxed);
    }
    text[size] = '\n';
    // Nothing can be done about a line that cannot be written.
    if (write(fd, text.data(), size + 1) < 0) return;
  }
}

}  // namespace castor::internal
