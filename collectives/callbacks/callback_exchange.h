// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CALLBACKS_CALLBACK_EXCHANGE_H_
#define CASTOR_COLLECTIVES_CALLBACKS_CALLBACK_EXCHANGE_H_

// Part of the callback communicator (callback_communicator.h).
//
// Moves the data of one operation by the host's all-gather and all-to-all. What
// lies side by side in the order of ranks is sent from where it lies; anything
// else goes through a buffer, a piece at a time:
//
//     chunk of this rank  | a | b | c |      piece k of a, b and c is packed,
//     sent                | ak| bk| ck|      exchanged, and what comes is added
//     received            | ak| ak'|ak"|     in rank order into its place
//
// One thread only.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/callbacks/callback_communicator.h"
#include "collectives/rank_scope.h"
#include "collectives/world/collective_call.h"
#include "collectives/world/data_movement.h"

namespace castor::internal {

// Makes the host's calls, and numbers them.
class HostCalls {
 public:
  // `watch` is told when a call begins and when it has ended.
  HostCalls(HostCollectives host, std::function<void(bool)> watch)
      : host_(std::move(host)), watch_(std::move(watch)) {}

  Status AllGather(const void* send, void* recv, Bytes bytes);
  Status AllToAll(const void* send, const std::vector<int64_t>& send_bytes,
                  void* recv, const std::vector<int64_t>& recv_bytes);
  Status Barrier();
  // Any thread.
  void Abort(const char* why) const { host_.abort(why); }
  // Any thread; empty where nobody knows.
  std::vector<int> WaitsFor() const {
    return host_.waits_for ? host_.waits_for() : std::vector<int>();
  }

 private:
  template <typename Call>
  Status Watched(const Call& call);

  const HostCollectives host_;
  const std::function<void(bool)> watch_;
  uint64_t seq_ = 0;
};

class CallbackExchange {
 public:
  // `calls` outlives it. `buffer`: for pieces, at least 4 KiB of each rank in
  // all.
  CallbackExchange(int rank, int size, Bytes buffer, HostCalls* calls);

  // REQUIRES: all ranks have come with `call`.
  Status Move(const CollectiveCall& call, const RankBuffers& buffers);
  Bytes buffer_bytes() const { return buffer_bytes_; }

 private:
  Status Gather(const CollectiveCall& call, const RankBuffers& buffers);
  Status ReduceScatter(const CollectiveCall& call, const RankBuffers& buffers);
  Status AllReduce(const CollectiveCall& call, const RankBuffers& buffers);
  Status Broadcast(const CollectiveCall& call, const RankBuffers& buffers);

  // Calls `move` with the offset and size of each piece of `bytes`, which is
  // whole elements.
  Status ByPieces(Bytes bytes,
                  const std::function<Status(int64_t, int64_t)>& move) const;
  std::byte* sent(int i) { return buffer_.get() + i * piece_.count(); }
  std::byte* received(int i) { return sent(size_ + i); }
  // `bytes` for each of those that this rank is among, 0 for others.
  std::vector<int64_t> ToMembers(const RankScope& scope, int64_t bytes) const;

  const int rank_;
  const int size_;
  const Bytes piece_;  // of one rank
  const Bytes buffer_bytes_;
  std::unique_ptr<std::byte[]> buffer_;  // pieces sent, then pieces received
  HostCalls* const calls_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_CALLBACKS_CALLBACK_EXCHANGE_H_
