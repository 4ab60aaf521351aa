// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_TRANSITION_TABLE_H_
#define CASTOR_CHUNK_TRANSITION_TABLE_H_

// How states change, as data: rows of (state, event, next state). What no row
// says is illegal. Pure functions, thread-safe.

#include <array>
#include <cstddef>
#include <optional>

namespace castor {

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

}  // namespace castor

#endif  // CASTOR_CHUNK_TRANSITION_TABLE_H_
