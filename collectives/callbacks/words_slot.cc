// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/callbacks/words_slot.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdint>

namespace castor::internal {
namespace {

constexpr size_t kSlots = 8;
constexpr size_t kMostText = 1000;

// Characters that may be read at any instant.
struct Text {
  std::atomic<size_t> size;
  std::array<std::atomic<char>, kMostText> chars;

  void Set(std::string_view text) {
    const size_t length = std::min(text.size(), kMostText);
    for (size_t i = 0; i < length; ++i) {
      chars[i].store(text[i], std::memory_order_relaxed);
    }
    size.store(length, std::memory_order_relaxed);
  }
};

struct Line {
  std::atomic<bool> matters;
  std::atomic<bool> outdated;
  Text text;
};

// Lines are written in turn, so that one is whole while the other is written.
struct Slot {
  std::atomic<bool> taken;
  std::atomic<int> current;    // -1: nothing to say
  std::atomic<uint64_t> turn;  // of all operations, and of all slots taken
  // Twice the operation's number, and one where it is under way: read at once.
  std::atomic<uint64_t> at;
  Text who;
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

// A line as a handler may make it.
class LineOut {
 public:
  void Add(const Text& text) {
    const size_t length = text.size.load(std::memory_order_relaxed);
    for (size_t i = 0; i < length; ++i) {
      line_[size_++] = text.chars[i].load(std::memory_order_relaxed);
    }
  }
  void Add(std::string_view text) {
    for (const char c : text) line_[size_++] = c;
  }
  void Add(uint64_t number) {
    char* const begin = line_.data() + size_;
    // Neither allocates nor looks at a locale.
    size_ += static_cast<size_t>(
        std::to_chars(begin, line_.data() + line_.size(), number).ptr - begin);
  }
  void Write(int fd) {
    line_[size_++] = '\n';
    // Nothing can be done about a line that cannot be written.
    if (write(fd, line_.data(), size_) < 0) return;
  }

 private:
  // Of a text, words around a number, and that.
  static constexpr size_t kMostRest = 200;

  std::array<char, kMostText + kMostRest> line_;
  size_t size_ = 0;
};

bool Outdated(const Line& line) {
  return line.outdated.load(std::memory_order_acquire);
}

bool UnderWay(const Slot& slot) {
  return slot.at.load(std::memory_order_relaxed) % 2 == 1;
}

// Whether somebody may hold the world up.
bool Matters(const Slot& slot, const Line& line) {
  return Outdated(line) ? UnderWay(slot)
                        : line.matters.load(std::memory_order_relaxed);
}

void WriteLine(const Slot& slot, const Line& line, int fd) {
  LineOut out;
  if (!Outdated(line)) {
    out.Add(line.text);
    return out.Write(fd);
  }
  const uint64_t at = slot.at.load(std::memory_order_relaxed);
  out.Add(slot.who);
  if (at % 2 == 1) {
    out.Add(" at operation ");
    out.Add(at / 2);
    out.Add(" of the world, before it knew whom it waited for");
  } else {
    out.Add(" while it waited for no rank, after operation ");
    out.Add(at / 2);
    out.Add(" of the world");
  }
  out.Write(fd);
}

}  // namespace

WordsSlot::WordsSlot(std::string_view who) {
  for (size_t i = 0; i < kSlots; ++i) {
    if (slots[i].taken.exchange(true)) continue;
    slots[i].current.store(-1);
    slots[i].at.store(0);
    slots[i].turn.store(turns.fetch_add(1) + 1);
    slots[i].who.Set(who);
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
  line.text.Set(text);
  line.matters.store(weight == WordsWeight::kMatters,
                     std::memory_order_relaxed);
  line.outdated.store(false, std::memory_order_relaxed);
  slot.current.store(next, std::memory_order_release);
}

void WordsSlot::At(int64_t operation, bool under_way) {
  if (slot_ < 0) return;
  Slot& slot = slots[static_cast<size_t>(slot_)];
  slot.at.store(static_cast<uint64_t>(operation) * 2 + (under_way ? 1 : 0),
                std::memory_order_relaxed);
  slot.turn.store(turns.fetch_add(1) + 1, std::memory_order_relaxed);
}

void WordsSlot::Outdate() {
  if (slot_ < 0) return;
  Slot& slot = slots[static_cast<size_t>(slot_)];
  const int current = slot.current.load(std::memory_order_relaxed);
  if (current < 0) return;
  slot.lines[static_cast<size_t>(current)].outdated.store(
      true, std::memory_order_release);
}

void WordsSlot::Hush() {
  if (slot_ >= 0) slots[static_cast<size_t>(slot_)].current.store(-1);
}

void WriteWords(int fd) {
  const Slot* last = nullptr;
  bool any_matters = false;
  for (const Slot& slot : slots) {
    const Line* const line = LineOf(slot);
    if (line == nullptr) continue;
    if (Matters(slot, *line)) {
      any_matters = true;
      WriteLine(slot, *line, fd);
    }
    if (last == nullptr || slot.turn.load(std::memory_order_relaxed) >
                               last->turn.load(std::memory_order_relaxed)) {
      last = &slot;
    }
  }
  if (any_matters || last == nullptr) return;
  // Its thread may have fallen silent since.
  if (const Line* const line = LineOf(*last)) WriteLine(*last, *line, fd);
}

}  // namespace castor::internal
