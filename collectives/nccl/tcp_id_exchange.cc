// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/tcp_id_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "chunk/base/clock.h"
#include "collectives/nccl/control/control_message.h"

namespace castor {
namespace {

using internal::ControlKind;
using internal::ControlLink;
using internal::ControlListener;
using internal::ControlMessage;

// How often a rank knocks where rank 0 does not listen yet.
constexpr std::chrono::milliseconds kKnock(50);

}  // namespace

TcpIdExchange::TcpIdExchange(TcpIdExchangeOptions options)
    : options_(std::move(options)) {}

Status TcpIdExchange::Broadcast(int rank, std::span<std::byte> data) {
  const SteadyClock clock;
  const int64_t deadline_ns = clock.NowNs() + options_.timeout_ns;
  if (options_.world == 1) return OkStatus();
  if (links_.empty()) {
    CASTOR_RETURN_IF_ERROR(
        Meet(rank, deadline_ns)
            .WithContext(fmt::format("ranks find each other at {}, port {}",
                                     options_.host, options_.port)));
  }
  if (rank == 0) {
    for (size_t peer = 1; peer < links_.size(); ++peer) {
      CASTOR_RETURN_IF_ERROR(links_[peer].Send(
          {.kind = ControlKind::kGo, .payload = {data.begin(), data.end()}}));
    }
    for (size_t peer = 1; peer < links_.size(); ++peer) {
      CASTOR_RETURN_IF_ERROR(links_[peer].FlushUntil(deadline_ns));
    }
    return OkStatus();
  }
  CASTOR_ASSIGN_OR_RETURN(const ControlMessage told,
                          links_.front().ReceiveOne(deadline_ns));
  if (told.kind != ControlKind::kGo || told.payload.size() != data.size()) {
    return Unavailable(fmt::format(
        "rank 0 told rank {} {} bytes instead of {}: start the same build of "
        "the program on every rank",
        rank, told.payload.size(), data.size()));
  }
  std::ranges::copy(told.payload, data.begin());
  return OkStatus();
}

Status TcpIdExchange::Meet(int rank, int64_t deadline_ns) {
  const auto port = static_cast<uint16_t>(options_.port);
  const std::string token = fmt::format("castor ids {} ", options_.run);
  const std::string facts = fmt::format("{} ranks", options_.world);
  if (rank == 0) {
    CASTOR_ASSIGN_OR_RETURN(ControlListener listener,
                            ControlListener::Open(options_.host, port));
    CASTOR_ASSIGN_OR_RETURN(links_, listener.AcceptRanks(options_.world, token,
                                                         facts, deadline_ns));
    return OkStatus();
  }
  const SteadyClock clock;
  while (true) {
    Result<ControlLink> link =
        internal::ConnectToRankZero({.hosts = {options_.host}, .port = port},
                                    rank, token, facts, deadline_ns);
    if (link.ok()) {
      links_.push_back(*std::move(link));
      return OkStatus();
    }
    // Rank 0 may not be there yet.
    if (link.status().code() != ErrorCode::kUnavailable ||
        clock.NowNs() >= deadline_ns) {
      return link.status();
    }
    std::this_thread::sleep_for(kKnock);
  }
}

}  // namespace castor
