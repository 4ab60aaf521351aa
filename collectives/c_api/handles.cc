// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/c_api/handles.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>

#include "chunk/base/check.h"
#include "collectives/c_api/door.h"

namespace castor::c_api {
namespace {

// A number: kind (8 bits), slot (24), generation (32). No address that a
// program may use on x86-64 or AArch64 looks so, since its uppermost byte is 0.
constexpr int kKindShift = 56;
constexpr int kSlotShift = 32;
constexpr uint32_t kMostSlots = 1 << 24;
constexpr uint32_t kSlotsOfBlock = 1 << 10;

uint64_t KindOf(uint64_t number) { return number >> kKindShift; }
uint32_t SlotOf(uint64_t number) {
  return static_cast<uint32_t>(number >> kSlotShift) & (kMostSlots - 1);
}
uint32_t GenerationOf(uint64_t number) { return static_cast<uint32_t>(number); }

// A slot's word: generation (32 bits), kind (4), live, claimed, pins (26). The
// generation counts the entries that the slot has had.
constexpr uint64_t kPin = 1;
constexpr uint64_t kPins = (uint64_t{1} << 26) - 1;
constexpr uint64_t kClaimed = uint64_t{1} << 26;
constexpr uint64_t kLive = uint64_t{1} << 27;
constexpr int kWordKindShift = 28;
constexpr int kWordGenerationShift = 32;

uint64_t WordOf(HandleKind kind, uint32_t generation) {
  return (uint64_t{generation} << kWordGenerationShift) |
         (uint64_t{static_cast<uint8_t>(kind)} << kWordKindShift) | kLive;
}
// 0 is of no handle.
uint32_t NextGeneration(uint32_t generation) {
  return generation == UINT32_MAX ? 1 : generation + 1;
}
uint32_t GenerationOfWord(uint64_t word) {
  return static_cast<uint32_t>(word >> kWordGenerationShift);
}

struct Slot {
  std::atomic<uint64_t> word = uint64_t{1} << kWordGenerationShift;
  std::atomic<void*> entry = nullptr;
  std::atomic<uint32_t> next_free = 0;
};
using Block = std::array<Slot, kSlotsOfBlock>;

// Without locks, since a fork's child looks handles up as well. Blocks stay for
// good: a number of long ago is still looked up.
std::atomic<Block*> g_blocks[kMostSlots / kSlotsOfBlock] = {};
// Slots that were taken at least once; slot 0 is none.
std::atomic<uint32_t> g_taken = 1;
// A stack of the slots that are free again: change count (32 bits), slot (32).
std::atomic<uint64_t> g_free = 0;

Slot& At(uint32_t slot) {
  return (*g_blocks[slot / kSlotsOfBlock].load(
      std::memory_order_acquire))[slot % kSlotsOfBlock];
}

uint32_t TakeSlot() {
  uint64_t top = g_free.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(top) != 0) {
    const auto slot = static_cast<uint32_t>(top);
    const uint64_t below = At(slot).next_free.load(std::memory_order_relaxed);
    const uint64_t changed = ((top >> 32) + 1) << 32;
    if (g_free.compare_exchange_weak(top, changed | below)) return slot;
  }
  const uint32_t slot = g_taken.fetch_add(1);
  CASTOR_CHECK(slot < kMostSlots);
  std::atomic<Block*>& block = g_blocks[slot / kSlotsOfBlock];
  if (block.load(std::memory_order_acquire) == nullptr) {
    auto made = std::make_unique<Block>();
    Block* none = nullptr;
    if (block.compare_exchange_strong(none, made.get())) made.release();
  }
  return slot;
}

void GiveSlotBack(uint32_t slot) {
  uint64_t top = g_free.load(std::memory_order_relaxed);
  uint64_t changed = 0;
  do {
    At(slot).next_free.store(static_cast<uint32_t>(top),
                             std::memory_order_relaxed);
    changed = (((top >> 32) + 1) << 32) | slot;
  } while (!g_free.compare_exchange_weak(top, changed));
}

// "" for no kind.
std::string_view NameOf(uint64_t kind) {
  constexpr std::string_view kNames[] = {
      "",
      "castor_world",
      "castor_device",
      "castor_lane",
      "castor_engine",
      "castor_param_lease",
      "castor_memory_lease",
      "castor_pinned_arena",
  };
  return kind < std::size(kNames) ? kNames[kind] : "";
}

std::string_view NameOf(HandleKind kind) {
  return NameOf(static_cast<uint64_t>(kind));
}

Status NeverGiven(HandleKind kind, uint64_t number) {
  return InvalidArgument(fmt::format("{}: {:#x} is no {} that Castor gave",
                                     CurrentCall(), number, NameOf(kind)));
}

Status Gone(HandleKind kind) {
  const bool lease =
      kind == HandleKind::kParamLease || kind == HandleKind::kMemoryLease;
  return InvalidArgument(fmt::format("{}: this {} was {}", CurrentCall(),
                                     NameOf(kind),
                                     lease ? "released" : "destroyed"));
}

// The slot, where the number may stand for an entry of that kind.
Result<Slot*> Find(HandleKind kind, uint64_t number) {
  const uint32_t slot = SlotOf(number);
  Slot* found = nullptr;
  if (slot != 0 && slot < g_taken.load(std::memory_order_acquire) &&
      g_blocks[slot / kSlotsOfBlock].load(std::memory_order_acquire) !=
          nullptr) {
    found = &At(slot);
  }
  const uint32_t generation = GenerationOf(number);
  const bool given = found != nullptr && !NameOf(KindOf(number)).empty() &&
                     generation != 0 &&
                     generation <= GenerationOfWord(found->word.load());
  if (!given) return NeverGiven(kind, number);
  if (KindOf(number) != static_cast<uint64_t>(kind)) {
    return InvalidArgument(fmt::format("{}: a {} was given where a {} belongs",
                                       CurrentCall(), NameOf(KindOf(number)),
                                       NameOf(kind)));
  }
  return found;
}

// Changes the word of a live entry from w to change(w), or returns why not.
template <typename Change>
Result<void*> ChangeLive(HandleKind kind, uint64_t number, Change&& change) {
  CASTOR_ASSIGN_OR_RETURN(Slot* const slot, Find(kind, number));
  const uint64_t live = WordOf(kind, GenerationOf(number));
  uint64_t word = slot->word.load(std::memory_order_acquire);
  uint64_t changed = 0;
  do {
    const uint64_t mine = word & ~(kPins | kClaimed);
    if (mine != live && (mine & kLive) != 0 &&
        GenerationOfWord(word) == GenerationOf(number)) {
      return NeverGiven(kind, number);  // the slot has one of another kind
    }
    if (mine != live) return Gone(kind);
    if ((word & kClaimed) != 0) {
      return FailedPrecondition(fmt::format("{}: another call ends this {}",
                                            CurrentCall(), NameOf(kind)));
    }
    CASTOR_ASSIGN_OR_RETURN(changed, change(word));
  } while (!slot->word.compare_exchange_weak(
      word, changed, std::memory_order_acq_rel, std::memory_order_acquire));
  return slot->entry.load(std::memory_order_relaxed);
}

}  // namespace

namespace handles {

uint64_t GiveNumber(HandleKind kind, void* entry) {
  const uint32_t at = TakeSlot();
  Slot& slot = At(at);
  const uint32_t generation = GenerationOfWord(slot.word.load());
  slot.entry.store(entry, std::memory_order_relaxed);
  slot.word.store(WordOf(kind, generation), std::memory_order_release);
  return (uint64_t{static_cast<uint8_t>(kind)} << kKindShift) |
         (uint64_t{at} << kSlotShift) | generation;
}

Result<void*> Pin(HandleKind kind, uint64_t number) {
  return ChangeLive(kind, number, [](uint64_t word) -> Result<uint64_t> {
    CASTOR_CHECK((word & kPins) < kPins);
    return word + kPin;
  });
}

void Unpin(uint64_t number) {
  std::atomic<uint64_t>& word = At(SlotOf(number)).word;
  const uint64_t left = word.fetch_sub(kPin, std::memory_order_acq_rel) - kPin;
  // EndNumber waits for the last one.
  if ((left & kLive) == 0) word.notify_all();
}

Result<void*> ClaimEntry(HandleKind kind, uint64_t number) {
  return ChangeLive(kind, number, [kind](uint64_t word) -> Result<uint64_t> {
    if ((word & kPins) == 0) return word | kClaimed;
    return FailedPrecondition(fmt::format("{}: another call uses this {}",
                                          CurrentCall(), NameOf(kind)));
  });
}

void Unclaim(uint64_t number) {
  At(SlotOf(number)).word.fetch_and(~kClaimed, std::memory_order_release);
}

void FreeNumber(uint64_t number) {
  const uint32_t at = SlotOf(number);
  At(at).word.store(
      uint64_t{NextGeneration(GenerationOf(number))} << kWordGenerationShift,
      std::memory_order_release);
  GiveSlotBack(at);
}

void EndNumber(uint64_t number) {
  std::atomic<uint64_t>& word = At(SlotOf(number)).word;
  uint64_t now = word.fetch_and(~kLive, std::memory_order_acq_rel) & ~kLive;
  while ((now & kPins) != 0) {
    word.wait(now, std::memory_order_acquire);
    now = word.load(std::memory_order_acquire);
  }
  FreeNumber(number);
}

}  // namespace handles

Status GoneError(HandleKind kind) { return Gone(kind); }

}  // namespace castor::c_api
