// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CALLBACKS_ROUND_MESSAGE_H_
#define CASTOR_COLLECTIVES_CALLBACKS_ROUND_MESSAGE_H_

// Part of the callback communicator (callback_communicator.h).
//
// What a rank says in a round, and what all ranks make of it. Values and pure
// functions, thread-safe.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/world/collective_call.h"

namespace castor::internal {

// Every message takes so many bytes, and tells of so many operations; words
// that are longer are cut.
inline constexpr size_t kRoundBytes = 1024;
inline constexpr size_t kMostCame = 8;

// An operation that a rank has come to and that is not done.
struct CameTo {
  int64_t position = 0;
  std::string call;       // EncodeCall's
  int64_t waited_ns = 0;  // since it came
};

struct RoundMessage {
  std::vector<CameTo> came;  // the first ones, by rising positions
  int64_t left_at = -1;      // it comes to none from here on; -1: it may
  Status reason;             // why its world has ended; ok while it goes on
};

std::string EncodeRound(const RoundMessage& message);
Result<RoundMessage> DecodeRound(std::string_view bytes);

// What a round came to, the same for all ranks.
struct RoundOutcome {
  int64_t move = -1;      // the operation to which all have come; -1: none
  bool all_left = false;  // nobody comes any more
  bool all_wait = false;  // every rank has come to some operation
  Status end;             // why the world ends; ok where it goes on
  // Who has not come to an operation to which others have, by its position.
  std::map<int64_t, std::vector<int>> absent;
};

// `messages` by rank.
RoundOutcome Judge(std::span<const RoundMessage> messages, int64_t timeout_ns);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_CALLBACKS_ROUND_MESSAGE_H_
