// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/param_state.h"

#include <fmt/format.h>

#include <array>

#include "chunk/transition_table.h"

namespace castor {
namespace {

constexpr std::array<Transition<ParamState, ParamEvent>, 6> kTable = {{
    {ParamState::kIdle, ParamEvent::kOpen, ParamState::kOpen},
    {ParamState::kOpen, ParamEvent::kOpen, ParamState::kOpen},
    {ParamState::kOpen, ParamEvent::kHandBack, ParamState::kReady},
    {ParamState::kIdle, ParamEvent::kMicroBatchEnd, ParamState::kIdle},
    {ParamState::kOpen, ParamEvent::kMicroBatchEnd, ParamState::kIdle},
    {ParamState::kReady, ParamEvent::kMicroBatchEnd, ParamState::kIdle},
}};

}  // namespace

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

Result<ParamState> NextState(ParamState state, ParamEvent event) {
  if (const auto next = FindTransition(kTable, state, event)) return *next;
  return FailedPrecondition(fmt::format(
      "its gradient is {} in this micro-batch and cannot be {}: call {}",
      ParamStateName(state), ParamEventName(event),
      state == ParamState::kIdle ? "Grad first"
                                 : "BeginMicroBatch or Step before the next"));
}

}  // namespace castor
