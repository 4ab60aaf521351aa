// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_LANES_EVENT_ACCESS_H_
#define CASTOR_OFFLOAD_LANES_EVENT_ACCESS_H_

// For lanes that make events of their own kind, and know them again. Pure
// functions.

#include <memory>
#include <utility>

#include "offload/lanes/event.h"
#include "offload/lanes/event_state.h"

namespace castor::internal {

struct EventAccess {
  static Event Make(std::shared_ptr<EventState> state) {
    return Event(std::move(state));
  }
  // Null: done and ok.
  static EventState* StateOf(const Event& event) { return event.state_.get(); }
};

}  // namespace castor::internal

#endif  // CASTOR_OFFLOAD_LANES_EVENT_ACCESS_H_
