// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The classes of a TierPool: their shapes, the memory they are cut from, and
// those that come and go.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/text/budget_text.h"
#include "chunk/text/raises_text.h"
#include "chunk/text/units_text.h"
#include "offload/memory/tier_pool.h"

namespace castor {
namespace {

// What transfers on the tier want: the coalescing unit of a GPU; a page, and
// the largest block of a drive.
int64_t SlotAlignment(Tier tier) { return tier == Tier::kDevice ? 512 : 4096; }

Status CheckShape(Tier tier, const SlotClass& shape, size_t index) {
  const int64_t alignment = SlotAlignment(tier);
  if (shape.slot_bytes <= Bytes(0) ||
      shape.slot_bytes.count() % alignment != 0) {
    return InvalidArgument(fmt::format(
        "slot class {} of the {} pool has slots of {} bytes, which is not a "
        "positive multiple of {}: round the size up",
        index, TierName(tier), shape.slot_bytes.count(), alignment));
  }
  if (shape.slots < 0 || shape.slots > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument(
        fmt::format("slot class {} of the {} pool has {} slots: give a number "
                    "between 0 and {}",
                    index, TierName(tier), shape.slots,
                    std::numeric_limits<int32_t>::max()));
  }
  return OkStatus();
}

// "3 slots of 1 MiB + 6 slots of 524288 bytes"
std::string Describe(std::span<const SlotClass> classes) {
  std::string text;
  for (const SlotClass& shape : classes) {
    text += fmt::format("{}{} slots of {}", text.empty() ? "" : " + ",
                        shape.slots, FormatBytes(shape.slot_bytes));
  }
  return text;
}

}  // namespace

TierPool::TierPool(Tier tier, Bytes budget) : tier_(tier) {
  stats_.budget = budget;
}

Status TierPool::CheckShapes(Tier tier, Bytes budget, Bytes reserved,
                             std::span<const SlotClass> classes, Bytes* size) {
  int64_t total = reserved.count();
  for (size_t i = 0; i < classes.size(); ++i) {
    const SlotClass& shape = classes[i];
    CASTOR_RETURN_IF_ERROR(CheckShape(tier, shape, i));
    int64_t bytes = 0;
    if (__builtin_mul_overflow(shape.slot_bytes.count(), shape.slots, &bytes) ||
        __builtin_add_overflow(total, bytes, &total)) {
      return Infeasible(fmt::format(
          "the {} pool's classes ({}) add up to more bytes than 64 bits count; "
          "its budget is {}: ask for fewer slots",
          TierName(tier), Describe(classes), BudgetText(budget)));
    }
  }
  if (Bytes(total) > budget) {
    return DoesNotFit(
        fmt::format(
            "the {} pool needs {} ({}{}) but its budget is {}", TierName(tier),
            FormatBytes(Bytes(total)), Describe(classes),
            reserved > Bytes(0)
                ? fmt::format(", beside {} that it has", FormatBytes(reserved))
                : std::string(),
            BudgetText(budget)),
        {RaiseOf(tier, Bytes(total) - budget)},
        "or ask for fewer or smaller slots");
  }
  *size = Bytes(total) - reserved;
  return OkStatus();
}

Result<TierPool> TierPool::Create(Tier tier, Bytes budget,
                                  std::span<const SlotClass> classes,
                                  std::byte* base) {
  CASTOR_CHECK(reinterpret_cast<uintptr_t>(base) %
                   static_cast<uintptr_t>(SlotAlignment(tier)) ==
               0);
  Bytes size;
  CASTOR_RETURN_IF_ERROR(CheckShapes(tier, budget, Bytes(0), classes, &size));
  TierPool pool(tier, budget);
  pool.AddClasses(classes, Bytes(0), base);
  pool.stats_.reserved = size;
  pool.first_extension_ = pool.classes();
  return pool;
}

void TierPool::AddClasses(std::span<const SlotClass> classes, Bytes offset,
                          std::byte* base) {
  classes_.reserve(classes_.size() + classes.size());
  for (const SlotClass& shape : classes) {
    ClassState state;
    state.shape = shape;
    state.offset = offset;
    state.base = base;
    offset += shape.slot_bytes * shape.slots;
    if (base != nullptr) base += (shape.slot_bytes * shape.slots).count();
    const auto slots = static_cast<size_t>(shape.slots);
    state.free.resize(slots);
    state.free_slots = slots;
    for (size_t i = 0; i < slots; ++i) state.free[i] = static_cast<int32_t>(i);
    state.taken.assign(slots, false);
    state.settled.assign(slots, false);
    state.free_after.resize(slots);
    classes_.push_back(std::move(state));
  }
}

Result<int32_t> TierPool::Extend(std::span<const SlotClass> classes,
                                 std::byte* base) {
  Bytes size;
  CASTOR_RETURN_IF_ERROR(
      CheckShapes(tier_, stats_.budget, stats_.reserved, classes, &size));
  const int32_t first = this->classes();
  AddClasses(classes, stats_.reserved, base);
  stats_.reserved += size;
  return first;
}

void TierPool::Retract(int32_t first) {
  CASTOR_CHECK(first >= first_extension_ && first <= classes());
  for (int32_t c = first; c < classes(); ++c) {
    const ClassState& state = State(c);
    CASTOR_CHECK_EQ(free_slots(c), state.shape.slots);
    CASTOR_CHECK(state.waiting.empty());
    stats_.reserved -= state.shape.slot_bytes * state.shape.slots;
  }
  classes_.resize(static_cast<size_t>(first));
  CheckBudget();
}

Status TierPool::AddSlot(int32_t slot_class, std::byte* data) {
  ClassState& state = State(slot_class);
  const SlotClass one{state.shape.slot_bytes, 1};
  Bytes size;
  CASTOR_RETURN_IF_ERROR(
      CheckShapes(tier_, stats_.budget, stats_.reserved, {&one, 1}, &size));
  // The ring begins at its first free slot, and the new one is its last.
  std::rotate(
      state.free.begin(),
      state.free.begin() + static_cast<std::ptrdiff_t>(state.first_free),
      state.free.end());
  state.first_free = 0;
  state.free.push_back(0);
  state.free[state.free_slots++] = static_cast<int32_t>(state.shape.slots++);
  state.taken.push_back(false);
  state.settled.push_back(false);
  state.free_after.emplace_back();
  state.added.push_back({stats_.reserved, data});
  stats_.reserved += size;
  CheckBudget();
  return OkStatus();
}

void TierPool::RebaseAdded(int32_t slot_class, int64_t index, std::byte* data) {
  ClassState& state = State(slot_class);
  const int64_t cut =
      state.shape.slots - static_cast<int64_t>(state.added.size());
  CASTOR_CHECK(index >= cut && index < state.shape.slots);
  state.added[static_cast<size_t>(index - cut)].data = data;
}

void TierPool::Rebase(std::byte* base) {
  for (int32_t c = 0; c < first_extension_; ++c) {
    ClassState& state = State(c);
    CASTOR_CHECK_EQ(free_slots(c), state.shape.slots);
    state.base = base == nullptr ? nullptr : base + state.offset.count();
    for (ClassState::Added& added : state.added) added.data = nullptr;
    for (Event& event : state.free_after) event = Event();
  }
}

}  // namespace castor
