// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/control/control_link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>

#include "chunk/base/clock.h"

namespace castor::internal {
namespace {

Status Gone(std::string why) { return Unavailable(std::move(why)); }

constexpr int64_t kLookMs = 50;

// Waits for `events` of one socket. False at the deadline, and where `give_up`
// says so.
bool WaitFor(int fd, short events, int64_t deadline_ns,
             const GiveUp& give_up = nullptr) {
  const SteadyClock clock;
  for (;;) {
    const int64_t left_ns = deadline_ns - clock.NowNs();
    if (left_ns <= 0 || (give_up && give_up())) return false;
    pollfd entry = {.fd = fd, .events = events, .revents = 0};
    int64_t left_ms = left_ns / 1'000'000 + 1;
    if (give_up) left_ms = std::min(left_ms, kLookMs);
    const int ready = poll(&entry, 1,
                           static_cast<int>(std::min<int64_t>(
                               left_ms, std::numeric_limits<int>::max())));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace

Status ControlLink::Send(const ControlMessage& message) {
  const std::vector<std::byte> bytes = Encode(message);
  if (!has_unsent()) {
    out_.clear();
    sent_ = 0;
  }
  out_.insert(out_.end(), bytes.begin(), bytes.end());
  return Flush();
}

Status ControlLink::Flush() {
  while (has_unsent()) {
    const ssize_t put = send(socket_.get(), out_.data() + sent_,
                             out_.size() - sent_, MSG_NOSIGNAL);
    if (put >= 0) {
      sent_ += static_cast<size_t>(put);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return OkStatus();
    } else if (errno != EINTR) {
      return Gone(std::strerror(errno));
    }
  }
  return OkStatus();
}

Status ControlLink::Receive(std::vector<ControlMessage>* messages) {
  for (ControlMessage& each : early_) messages->push_back(std::move(each));
  early_.clear();
  Status gone;
  std::array<std::byte, 64 << 10> piece;
  for (;;) {
    const ssize_t got = recv(socket_.get(), piece.data(), piece.size(), 0);
    if (got > 0) {
      in_.insert(in_.end(), piece.begin(), piece.begin() + got);
    } else if (got == 0) {
      gone = Gone("it was closed");
      break;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      gone = Gone(std::strerror(errno));
      break;
    }
  }
  std::span<const std::byte> rest = in_;
  while (rest.size() >= kLengthBytes) {
    uint32_t length = 0;
    std::memcpy(&length, rest.data(), kLengthBytes);
    if (length > kLongestMessage) {
      return Malformed("a message is longer than any that a rank sends");
    }
    if (rest.size() - kLengthBytes < length) break;
    CASTOR_ASSIGN_OR_RETURN(ControlMessage message,
                            Decode(rest.subspan(kLengthBytes, length)));
    messages->push_back(std::move(message));
    rest = rest.subspan(kLengthBytes + length);
  }
  in_.erase(in_.begin(), in_.end() - std::ssize(rest));
  return gone;
}

Status ControlLink::FlushUntil(int64_t deadline_ns) {
  CASTOR_RETURN_IF_ERROR(Flush());
  while (has_unsent()) {
    if (!WaitFor(socket_.get(), POLLOUT, deadline_ns)) {
      return Gone("it takes nothing");
    }
    CASTOR_RETURN_IF_ERROR(Flush());
  }
  return OkStatus();
}

Result<ControlMessage> ControlLink::ReceiveOne(int64_t deadline_ns,
                                               const GiveUp& give_up) {
  std::vector<ControlMessage> messages = std::exchange(early_, {});
  while (messages.empty()) {
    if (!WaitFor(socket_.get(), POLLIN, deadline_ns, give_up)) {
      return Gone("nothing comes");
    }
    const Status received = Receive(&messages);
    if (messages.empty()) CASTOR_RETURN_IF_ERROR(received);
  }
  early_.assign(std::make_move_iterator(messages.begin() + 1),
                std::make_move_iterator(messages.end()));
  return std::move(messages.front());
}

void ControlLink::CloseGracefully(int64_t deadline_ns) {
  FlushUntil(deadline_ns).IgnoreError();  // then the other side is gone too
  shutdown(socket_.get(), SHUT_WR);
  std::array<std::byte, 4096> piece;
  while (WaitFor(socket_.get(), POLLIN, deadline_ns)) {
    const ssize_t got = recv(socket_.get(), piece.data(), piece.size(), 0);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) break;
  }
  socket_.Close();
}

}  // namespace castor::internal
