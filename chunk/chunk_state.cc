// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/chunk_state.h"

#include <fmt/format.h>

#include <array>

#include "chunk/transition_table.h"

namespace castor {
namespace {

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

Result<CopyState> NextState(CopyState state, CopyEvent event) {
  if (const auto next = FindTransition(kCopyTable, state, event)) return *next;
  return Illegal("gathered copy", CopyStateName(state), CopyEventName(event));
}

Result<GradState> NextState(GradState state, GradEvent event) {
  if (const auto next = FindTransition(kGradTable, state, event)) return *next;
  return Illegal("gradient", GradStateName(state), GradEventName(event));
}

}  // namespace castor
