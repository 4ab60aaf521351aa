// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/control/control_plane.h"

#include <fmt/format.h>

#include <utility>

#include "chunk/base/check.h"

namespace castor::internal {

ControlPlane::ControlPlane(int rank, int world, std::vector<ControlLink> links,
                           ControlTimeouts timeouts)
    : rank_(rank), timeouts_(timeouts) {
  for (ControlLink& link : links) {
    links_.push_back(link.fd() >= 0 ? std::optional(std::move(link))
                                    : std::nullopt);
  }
  if (rank == 0) {
    keeper_ = std::make_unique<OrderKeeper>(world, timeouts.operation_ns,
                                            timeouts.start_ns);
  } else {
    CASTOR_CHECK_EQ(links_.size(), size_t{1});
  }
}

void ControlPlane::Say(ControlMessage message) {
  const int64_t now_ns = clock_.NowNs();
  if (message.kind == ControlKind::kReady) {
    message.text = std::string(message.call.tag.purpose);
  }
  if (keeper_ != nullptr) {
    if (message.kind == ControlKind::kLeave) {
      for (std::optional<ControlLink>& link : links_) {
        // Who is gone needs not hear it.
        if (link.has_value()) link->Send(message).IgnoreError();
      }
    }
    keeper_->Take(0, std::move(message), now_ns);
    return;
  }
  if (message.kind == ControlKind::kReady) {
    const int64_t position = message.position;
    if (zero_left_at_.has_value()) {
      return EndHere(LeftError(position, message.call, 0));
    }
    pending_[position] = {.call = message.call, .since_ns = now_ns};
  } else if (message.kind == ControlKind::kEnd) {
    if (ended_ || own_end_.has_value()) return;
    own_end_ = message;
    own_end_ns_ = now_ns;
  }
  if (links_[0].has_value()) {
    const Status sent = links_[0]->Send(message);
    if (!sent.ok()) RankZeroIsGone(sent);
  } else if (message.kind == ControlKind::kEnd) {
    EndHere(message.status);
  } else if (message.kind == ControlKind::kQuiet) {
    // Nobody is left to say when the others are.
    to_hear_.push_back({.kind = ControlKind::kQuiet});
  }
}

void ControlPlane::Serve(std::vector<ControlMessage>* heard) {
  if (keeper_ != nullptr) {
    ServeAsRankZero(heard);
  } else {
    ServeAsOther(heard);
  }
}

void ControlPlane::ServeAsRankZero(std::vector<ControlMessage>* heard) {
  const int64_t now_ns = clock_.NowNs();
  for (size_t r = 1; r < links_.size(); ++r) {
    std::optional<ControlLink>& link = links_[r];
    if (!link.has_value()) continue;
    std::vector<ControlMessage> said;
    const Status received = link->Receive(&said);
    bool left = false;
    for (ControlMessage& message : said) {
      left = left || message.kind == ControlKind::kLeave;
      keeper_->Take(static_cast<int>(r), std::move(message), now_ns);
    }
    // What it was told is on its way, and it says nothing more.
    if (left && !link->has_unsent()) link.reset();
    if (!received.ok()) {
      keeper_->Lost(static_cast<int>(r), received.message());
      link.reset();
    }
  }
  keeper_->CheckTimeout(now_ns);
  for (ControlMessage& verdict : keeper_->TakeVerdicts()) {
    for (size_t r = 1; r < links_.size(); ++r) {
      if (!links_[r].has_value()) continue;
      const Status sent = links_[r]->Send(verdict);
      if (sent.ok()) continue;
      keeper_->Lost(static_cast<int>(r), sent.message());
      links_[r].reset();
    }
    to_hear_.push_back(std::move(verdict));
  }
  for (std::optional<ControlLink>& link : links_) {
    // A link that fails here fails when it is read.
    if (link.has_value()) link->Flush().IgnoreError();
  }
  HandOut(heard);
}

void ControlPlane::ServeAsOther(std::vector<ControlMessage>* heard) {
  std::optional<ControlLink>& link = links_[0];
  if (link.has_value()) {
    std::vector<ControlMessage> told;
    Status received = link->Receive(&told);
    for (ControlMessage& message : told) {
      if (message.kind == ControlKind::kLeave) {
        zero_left_at_ = message.position;
        continue;
      }
      if (message.kind == ControlKind::kGo) pending_.erase(message.position);
      to_hear_.push_back(std::move(message));
    }
    if (zero_left_at_.has_value()) {
      link.reset();
      if (!pending_.empty()) {
        const auto& [position, pending] = *pending_.begin();
        EndHere(LeftError(position, pending.call, 0));
      } else if (own_end_.has_value()) {
        EndHere(own_end_->status);
      }
      to_hear_.push_back({.kind = ControlKind::kQuiet});
    } else if (received.ok()) {
      received = link->Flush();
    }
    if (link.has_value() && !received.ok()) RankZeroIsGone(received);
  }
  CheckSilence();
  HandOut(heard);
}

void ControlPlane::RankZeroIsGone(const Status& how) {
  links_[0].reset();
  std::string where;
  if (!pending_.empty()) {
    const auto& [position, pending] = *pending_.begin();
    where = fmt::format(" Rank {} had come to operation {}, {}.", rank_,
                        position, Describe(pending.call));
  }
  EndHere(Aborted(
      fmt::format("rank 0 died, or its host is cut off: its connection to rank "
                  "{} is gone ({}).{} Look at that rank's last words",
                  rank_, how.message(), where)));
  to_hear_.push_back({.kind = ControlKind::kQuiet});
}

void ControlPlane::CheckSilence() {
  if (ended_) return;
  const int64_t now_ns = clock_.NowNs();
  if (own_end_.has_value() && now_ns - own_end_ns_ > timeouts_.slack_ns) {
    return EndHere(own_end_->status);
  }
  for (const auto& [position, pending] : pending_) {
    const int64_t limit =
        position < 0 ? timeouts_.start_ns : timeouts_.operation_ns;
    const int64_t waited = now_ns - pending.since_ns;
    if (limit <= 0 || waited < limit + limit / 4 + timeouts_.slack_ns) continue;
    return EndHere(Aborted(fmt::format(
        "rank 0, which keeps the order of all ranks, says nothing of operation "
        "{}, {}, which rank {} came to {} s ago: it hangs, or its host does",
        position, Describe(pending.call), rank_,
        static_cast<double>(waited) * 1e-9)));
  }
}

void ControlPlane::EndHere(Status reason) {
  to_hear_.push_back({.kind = ControlKind::kEnd, .status = std::move(reason)});
}

void ControlPlane::HandOut(std::vector<ControlMessage>* heard) {
  for (ControlMessage& message : to_hear_) {
    if (ended_ && message.kind != ControlKind::kQuiet) continue;
    ended_ = ended_ || message.kind == ControlKind::kEnd;
    heard->push_back(std::move(message));
  }
  to_hear_.clear();
}

void ControlPlane::AppendTo(std::vector<pollfd>* entries) const {
  for (const std::optional<ControlLink>& link : links_) {
    if (!link.has_value()) continue;
    const short events =
        static_cast<short>(POLLIN | (link->has_unsent() ? POLLOUT : 0));
    entries->push_back({.fd = link->fd(), .events = events, .revents = 0});
  }
}

void ControlPlane::Close(int64_t deadline_ns) {
  for (std::optional<ControlLink>& link : links_) {
    if (link.has_value()) link->CloseGracefully(deadline_ns);
  }
}

}  // namespace castor::internal
