// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "chunk/base/check.h"
#include "collectives/internal/call_code.h"
#include "collectives/mpi/internal/mpi_world.h"

namespace castor::internal {

// What other ranks say.

bool MpiWorld::HearControl() {
  bool any = false;
  while (std::optional<MpiWire::Control> control = wire_.NextControl()) {
    any = true;
    const Result<ControlMessage> message = DecodeMessage(control->message);
    if (message.ok()) {
      Hear(control->peer, *message);
    } else {
      End(message.status().WithContext(
          fmt::format("from rank {}", control->peer)));
    }
  }
  return any;
}

void MpiWorld::Hear(int peer, const ControlMessage& message) {
  Peer& sender = peers_[static_cast<size_t>(peer)];
  news_ = true;
  switch (message.kind) {
    case ControlKind::kCall: {
      const auto place = meetings_.find(message.position);
      if (place != meetings_.end()) {
        Meet(place->second, peer, message.call);
      } else if (!ending_) {
        early_[message.position].emplace_back(peer, message.call);
      }
      return;
    }
    case ControlKind::kEnd:
      End(message.end.reason);
      sender.end = message.end;
      break;
    case ControlKind::kLeave: {
      sender.left_at = message.position;
      const auto first = meetings_.lower_bound(message.position);
      if (first == meetings_.end()) return;
      return End(LeftError(first->first, first->second.own.call, peer));
    }
    case ControlKind::kGone:
      sender.gone = true;
      break;
    case ControlKind::kAsk:
      // Who has gone says nothing more.
      if (told_gone_) return;
      return wire_.SendControl(
          peer,
          EncodeMessage({.kind = meetings_.empty() ? ControlKind::kIdles
                                                   : ControlKind::kWaits}));
    case ControlKind::kWaits:
    case ControlKind::kIdles:
      sender.waits = message.kind == ControlKind::kWaits;
      return;
  }
  if (!ending_) return;  // BeginEnding will look at it
  for (auto& [position, meeting] : meetings_) {
    // What a rank gives up does not end well here either.
    if (!meeting.exchange.given_up() && !StillEnds(position)) {
      GiveUp(meeting);
    } else {
      Settle(meeting, peer);
    }
  }
}

void MpiWorld::Meet(Meeting& meeting, int peer, const std::string& call) {
  if (meeting.exchange.given_up()) return;
  if (call != meeting.encoded) {
    const Result<CollectiveCall> theirs = DecodeCall(call);
    return End(theirs.ok() ? MismatchError(meeting.own.position, peer, *theirs,
                                           rank_, meeting.own.call)
                           : theirs.status());
  }
  CASTOR_CHECK(!meeting.came[static_cast<size_t>(peer)]);
  meeting.came[static_cast<size_t>(peer)] = true;
  meeting.exchange.PeerCame(peer);
  if (++meeting.here < size_) return;
  meeting.since_ns = options_.clock->NowNs();
  // It is given to operations to which all have come, and to these in the order
  // in which they got there: they wait for nobody who waits for it.
  if (meeting.exchange.wants_scratch()) want_scratch_.push_back(&meeting);
}

}  // namespace castor::internal
