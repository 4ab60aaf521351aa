// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <algorithm>
#include <string>

#include "collectives/mpi/internal/mpi_world.h"

namespace castor::internal {

// How a world ends: what ranks still owe each other, and who has gone.

void MpiWorld::BeginEnding() {
  ending_ = true;
  ended_ns_ = options_.clock->NowNs();
  early_.clear();
  news_ = true;
  for (auto& [position, meeting] : meetings_) {
    if (!StillEnds(position)) meeting.exchange.GiveUp();
  }
  TellEnd();
  for (auto& [position, meeting] : meetings_) {
    for (int peer = 0; peer < size_; ++peer) Settle(meeting, peer);
  }
}

void MpiWorld::TellEnd() {
  // To have gone says as much, and nothing comes after it.
  if (told_gone_) return;
  ControlMessage message{.kind = ControlKind::kEnd};
  message.end.reason = ended();
  message.end.done_below = done_below_;
  message.end.done.assign(done_above_.begin(), done_above_.end());
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    message.end.sent.clear();
    for (const auto& [position, meeting] : meetings_) {
      message.end.sent.push_back(meeting.exchange.SentTo(peer));
    }
    wire_.SendControl(peer, EncodeMessage(message));
  }
}

void MpiWorld::GiveUp(Meeting& meeting) {
  meeting.exchange.GiveUp();
  for (int peer = 0; peer < size_; ++peer) Settle(meeting, peer);
}

void MpiWorld::Settle(Meeting& meeting, int peer) {
  if (peer == rank_ || !meeting.exchange.given_up()) return;
  const Peer& sender = peers_[static_cast<size_t>(peer)];
  const int64_t position = meeting.own.position;
  const SentPieces all = {position, {kAllPieces, kAllPieces}};
  SentPieces sent = {position, {}};
  if (sender.end) {
    for (const SentPieces& each : sender.end->sent) {
      if (each.position == position) sent = each;
    }
    if (sender.end->Did(position)) sent = all;
  } else if (sender.gone) {
    // It ended every operation it had come to.
    if (meeting.came[static_cast<size_t>(peer)]) sent = all;
  } else {
    return;
  }
  meeting.exchange.PeerSends(peer, sent);
}

bool MpiWorld::StillEnds(int64_t position) const {
  bool did = false;
  for (const Peer& peer : peers_) {
    if (!peer.end) {
      did = did || (peer.gone && position < peer.left_at);
    } else if (peer.end->Did(position)) {
      did = true;
    } else {
      const bool will = std::any_of(
          peer.end->sent.begin(), peer.end->sent.end(),
          [&](const SentPieces& sent) {
            return sent.position == position && sent.pieces[0] == kAllPieces;
          });
      if (!will) return false;
    }
  }
  return did;
}

void MpiWorld::Tell(const ControlMessage& message) {
  const std::string encoded = EncodeMessage(message);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) wire_.SendControl(peer, encoded);
  }
}

void MpiWorld::TellGone() {
  if (told_gone_) return;
  int64_t called = 0;
  bool through = false;
  {
    std::lock_guard lock(mutex_);
    if (!leaving_) return;
    called = called_;
    through = resolved_ == called_;
  }
  if (!told_leave_) {
    told_leave_ = true;
    Tell({.kind = ControlKind::kLeave, .position = called});
  }
  if (!through) return;
  told_gone_ = true;
  news_ = true;
  Tell({.kind = ControlKind::kGone});
}

bool MpiWorld::Finished() const {
  {
    std::lock_guard lock(mutex_);
    if (give_up_waiting_) return true;
  }
  if (!told_gone_) return false;
  bool all_gone = true;
  bool all_answered = true;
  for (int peer = 0; peer < size_; ++peer) {
    const Peer& each = peers_[static_cast<size_t>(peer)];
    if (peer == rank_ || each.gone) continue;
    all_gone = false;
    all_answered = all_answered && each.end.has_value();
  }
  // Who has not answered by now will not leave either.
  if (!all_answered && OutOfPatience()) return true;
  return all_gone && !wire_.sending_control() && !wire_.moving_data();
}

bool MpiWorld::OutOfPatience() const {
  return ending_ && options_.clock->NowNs() - ended_ns_ >= kGraceNs;
}

}  // namespace castor::internal
