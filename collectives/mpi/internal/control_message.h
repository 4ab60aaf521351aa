// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MPI_INTERNAL_CONTROL_MESSAGE_H_
#define CASTOR_COLLECTIVES_MPI_INTERNAL_CONTROL_MESSAGE_H_

// Part of the world of MPI (mpi_world.h).
//
// What the processes of a world tell each other beside the data: which call
// they have come to, that the world has ended and what is still on its way,
// who waits for whom, and that they leave. Ranks run the same build on machines
// of one kind, so numbers travel as they lie in memory. Values and pure
// functions, thread-safe.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/internal/collective_call.h"

namespace castor::internal {

enum class ControlKind : uint8_t {
  kCall,   // the sender has come to an operation
  kEnd,    // the world has ended for the sender
  kLeave,  // the sender makes no further calls
  kGone,   // and has ended those it made: nothing comes from it any more
  kAsk,    // does the receiver wait for somebody in an operation?
  kWaits,  // it does
  kIdles,  // it does not: others wait for it
};

// An operation's data goes in up to two phases: contributions, then results.
inline constexpr int kPhases = 2;
// More pieces than any transfer has.
inline constexpr int64_t kAllPieces = int64_t{1} << 62;

// What one rank has begun to send another for an operation that it gives up, or
// will send (kAllPieces) for one that it still ends.
struct SentPieces {
  int64_t position = 0;
  int64_t pieces[kPhases] = {};

  friend bool operator==(const SentPieces&, const SentPieces&) = default;
};

struct EndNotice {
  Status reason = {};
  // Positions that have ended well: all below the first, and the others.
  int64_t done_below = 0;
  std::vector<int64_t> done = {};
  std::vector<SentPieces> sent =
      {};  // to the receiver; nothing where not named

  bool Did(int64_t position) const;
};

struct ControlMessage {
  ControlKind kind = ControlKind::kCall;
  int64_t position = 0;   // of a call; the first that kLeave will not come to
  std::string call = {};  // EncodeCall's
  EndNotice end = {};
};

std::string EncodeMessage(const ControlMessage& message);
Result<ControlMessage> DecodeMessage(std::string_view bytes);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_MPI_INTERNAL_CONTROL_MESSAGE_H_
