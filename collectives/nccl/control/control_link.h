// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_NCCL_CONTROL_CONTROL_LINK_H_
#define CASTOR_COLLECTIVES_NCCL_CONTROL_CONTROL_LINK_H_

// Part of the control plane (control_plane.h).
//
// A connection between a rank and rank 0 (TCP, no delay), and how the two find
// each other. Calls do not block, but for those that say so.
// Thread-compatible.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/nccl/control/control_message.h"
#include "offload/nvme/queue/unique_fd.h"

namespace castor::internal {

// Asked often by a call that blocks: whether it is to end. Null: it is not.
using GiveUp = std::function<bool()>;

class ControlLink {
 public:
  explicit ControlLink(UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  // Queues it, and writes what the socket takes. Unavailable when the other
  // side is gone.
  Status Send(const ControlMessage& message);
  Status Flush();
  bool has_unsent() const { return sent_ < out_.size(); }

  // Appends what came. Unavailable when the other side is gone or has closed,
  // Malformed when it sends what no rank does; what came before is appended.
  Status Receive(std::vector<ControlMessage>* messages);

  // Blocks until everything is sent or `deadline_ns` (SteadyClock).
  Status FlushUntil(int64_t deadline_ns);
  // Blocks until a message came, `deadline_ns`, or `give_up` says so.
  Result<ControlMessage> ReceiveOne(int64_t deadline_ns,
                                    const GiveUp& give_up = nullptr);
  // Says that nothing more comes, and waits until the other side has closed or
  // `deadline_ns`: a socket that is closed while something comes in throws away
  // what it has not delivered.
  void CloseGracefully(int64_t deadline_ns);

 private:
  UniqueFd socket_;
  std::vector<std::byte> out_;
  size_t sent_ = 0;  // of out_
  std::vector<std::byte> in_;
  std::vector<ControlMessage> early_;  // came with what ReceiveOne returned
};

// Where rank 0 listens.
struct ControlAddress {
  std::vector<std::string> hosts;  // numbers, best first
  uint16_t port = 0;
};

class ControlListener {
 public:
  // On every interface, on `port`, or one that the system picks where that is
  // 0. `host`, if not empty, is published instead of the interfaces' addresses.
  // Unavailable, with the reason, where it cannot.
  static Result<ControlListener> Open(const std::string& host,
                                      uint16_t port = 0);

  const ControlAddress& address() const { return address_; }

  // Waits until ranks 1 to world - 1 have said hello with `token` and `facts`,
  // and returns their links by rank, the first empty. Strangers are shown the
  // door. Where a rank has other facts, or is missing at `deadline_ns`, all who
  // came are told, and it is returned: FailedPrecondition, Unavailable; and so
  // is Aborted where `give_up` says so. Blocks.
  Result<std::vector<ControlLink>> AcceptRanks(int world,
                                               std::string_view token,
                                               std::string_view facts,
                                               int64_t deadline_ns,
                                               const GiveUp& give_up = nullptr);

 private:
  ControlListener(UniqueFd socket, ControlAddress address)
      : socket_(std::move(socket)), address_(std::move(address)) {}

  UniqueFd socket_;
  ControlAddress address_;
};

// Connects `rank` to rank 0 and waits until all ranks have. Unavailable with
// the remedy where none of the addresses leads there; Aborted where `give_up`
// says so. Blocks.
Result<ControlLink> ConnectToRankZero(const ControlAddress& address, int rank,
                                      std::string_view token,
                                      std::string_view facts,
                                      int64_t deadline_ns,
                                      const GiveUp& give_up = nullptr);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_NCCL_CONTROL_CONTROL_LINK_H_
