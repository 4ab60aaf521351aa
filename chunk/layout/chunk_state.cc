// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout/chunk_state.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <optional>

namespace castor {
namespace {

// How states change, as data. What no row says is illegal.
template <typename State, typename Event>
struct Transition {
  State from;
  Event event;
  State to;
};

// The state after `event`; empty when the table does not know it.
template <typename State, typename Event, std::size_t kRows>
constexpr std::optional<State> FindTransition(
    const std::array<Transition<State, Event>, kRows>& table, State state,
    Event event) {
  for (const Transition<State, Event>& row : table) {
    if (row.from == state && row.event == event) return row.to;
  }
  return std::nullopt;
}

constexpr std::array<Transition<CopyState, CopyEvent>, 7> kCopyTable = {{
    {CopyState::kAbsent, CopyEvent::kFetch, CopyState::kFilling},
    {CopyState::kFilling, CopyEvent::kReady, CopyState::kResident},
    {CopyState::kFilling, CopyEvent::kFail, CopyState::kAbsent},
    {CopyState::kResident, CopyEvent::kPin, CopyState::kPinned},
    {CopyState::kPinned, CopyEvent::kPin, CopyState::kPinned},
    {CopyState::kPinned, CopyEvent::kUnpinLast, CopyState::kResident},
    {CopyState::kResident, CopyEvent::kRelease, CopyState::kAbsent},
}};

constexpr std::array<Transition<GradState, GradEvent>, 4> kGradTable = {{
    {GradState::kNone, GradEvent::kOpen, GradState::kOpen},
    {GradState::kOpen, GradEvent::kAllReady, GradState::kReducing},
    {GradState::kReducing, GradEvent::kReduced, GradState::kNone},
    {GradState::kOpen, GradEvent::kAbandon, GradState::kNone},
}};

constexpr std::array<Transition<ParamState, ParamEvent>, 6> kParamTable = {{
    {ParamState::kIdle, ParamEvent::kOpen, ParamState::kOpen},
    {ParamState::kOpen, ParamEvent::kOpen, ParamState::kOpen},
    {ParamState::kOpen, ParamEvent::kHandBack, ParamState::kReady},
    {ParamState::kIdle, ParamEvent::kMicroBatchEnd, ParamState::kIdle},
    {ParamState::kOpen, ParamEvent::kMicroBatchEnd, ParamState::kIdle},
    {ParamState::kReady, ParamEvent::kMicroBatchEnd, ParamState::kIdle},
}};

Status Illegal(std::string_view what, std::string_view state,
               std::string_view event) {
  return FailedPrecondition(fmt::format(
      "a chunk's {} that is {} cannot take the event {}", what, state, event));
}

}  // namespace

std::string_view CopyStateName(CopyState state) {
  switch (state) {
    case CopyState::kAbsent:
      return "absent";
    case CopyState::kFilling:
      return "filling";
    case CopyState::kResident:
      return "resident";
    case CopyState::kPinned:
      return "pinned";
  }
  return "unknown";
}

std::string_view CopyEventName(CopyEvent event) {
  switch (event) {
    case CopyEvent::kFetch:
      return "fetch";
    case CopyEvent::kReady:
      return "ready";
    case CopyEvent::kFail:
      return "fail";
    case CopyEvent::kPin:
      return "pin";
    case CopyEvent::kUnpinLast:
      return "unpin last";
    case CopyEvent::kRelease:
      return "release";
  }
  return "unknown";
}

std::string_view GradStateName(GradState state) {
  switch (state) {
    case GradState::kNone:
      return "none";
    case GradState::kOpen:
      return "open";
    case GradState::kReducing:
      return "reducing";
  }
  return "unknown";
}

std::string_view GradEventName(GradEvent event) {
  switch (event) {
    case GradEvent::kOpen:
      return "open";
    case GradEvent::kAllReady:
      return "all ready";
    case GradEvent::kReduced:
      return "reduced";
    case GradEvent::kAbandon:
      return "abandon";
  }
  return "unknown";
}

std::string_view ParamStateName(ParamState state) {
  switch (state) {
    case ParamState::kIdle:
      return "not open";
    case ParamState::kOpen:
      return "open";
    case ParamState::kReady:
      return "handed back already";
  }
  return "unknown";
}

std::string_view ParamEventName(ParamEvent event) {
  switch (event) {
    case ParamEvent::kOpen:
      return "opened";
    case ParamEvent::kHandBack:
      return "handed back";
    case ParamEvent::kMicroBatchEnd:
      return "forgotten";
  }
  return "unknown";
}

Result<CopyState> NextState(CopyState state, CopyEvent event) {
  if (const auto next = FindTransition(kCopyTable, state, event)) return *next;
  return Illegal("gathered copy", CopyStateName(state), CopyEventName(event));
}

Result<GradState> NextState(GradState state, GradEvent event) {
  if (const auto next = FindTransition(kGradTable, state, event)) return *next;
  return Illegal("gradient", GradStateName(state), GradEventName(event));
}

Result<ParamState> NextState(ParamState state, ParamEvent event) {
  if (const auto next = FindTransition(kParamTable, state, event)) return *next;
  return FailedPrecondition(fmt::format(
      "its gradient is {} in this micro-batch and cannot be {}: call {}",
      ParamStateName(state), ParamEventName(event),
      state == ParamState::kIdle
          ? "Grad() first"
          : "BeginMicroBatch() or Step() before the next"));
}

}  // namespace castor
