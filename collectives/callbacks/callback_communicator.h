// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CALLBACKS_CALLBACK_COMMUNICATOR_H_
#define CASTOR_COLLECTIVES_CALLBACKS_CALLBACK_COMMUNICATOR_H_

// Ranks that a host program connects: Castor's collectives are made of the
// host's all-gather and all-to-all, those of torch.distributed for one. A
// thread of the communicator makes all calls but `abort`, one at a time and in
// the same order on all ranks.
//
// Ranks meet in rounds. In each round every rank says something by an
// all-gather of a short message: which operation it has come to, if any, that
// it leaves, or why its world has ended. All ranks read the same messages and
// so do the same: move the data once all have come with the same call, and
// otherwise end with the same words. A rank without an operation lets the
// others wait for a tenth of a second at most. So a rank that hangs is named.
// An idle world costs ten messages a second.
//
// Reductions exchange slices and add them up here, in rank order and in fp32,
// with the bits of the in-process backend. Memory must be addressable by the
// host.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"

namespace castor {

// What the host does for one rank. Each call but `abort` blocks until it is
// done; a failure ends the world, with its words. `seq` counts the calls of a
// rank from 0. Buffers are host memory.
struct HostCollectives {
  // `recv` holds `bytes` of each rank, in rank order; `send` may be its place
  // there.
  std::function<Status(uint64_t seq, const void* send, void* recv, Bytes bytes)>
      all_gather;
  // `send` holds send_bytes[r] for each rank r, one after the other, and `recv`
  // what each sends here. They do not overlap.
  std::function<Status(uint64_t seq, const void* send,
                       const int64_t* send_bytes, void* recv,
                       const int64_t* recv_bytes)>
      all_to_all;
  std::function<Status(uint64_t seq)> barrier;
  // Ends a call that waits, on this rank, and may end those of others. Any
  // thread, at most once.
  std::function<void(const char* why)> abort;
  // The ranks that the call under way still waits for, so that messages name
  // them. Any thread, and it waits for nothing. Null: the host does not know.
  std::function<std::vector<int>()> waits_for = {};
};

struct CallbackOptions {
  // An operation to which not all ranks have come within this time ends the
  // world, naming the ranks it waits for; and so does a call of the host's that
  // takes as long. 0 waits for ever.
  int64_t timeout_ns = 120'000'000'000;
  // For what is not sent from where it lies, which is what buffer_bytes() says.
  // At least 2 KiB for each rank, twice, are taken.
  Bytes exchange_buffer = MiB(4);
  // Must outlive the communicator; null: the machine's clock.
  const Clock* clock = nullptr;
};

// InvalidArgument where they have no meaning.
Status CheckCallbackOptions(const CallbackOptions& options);

// Blocks in the host's barrier until every rank makes it. InvalidArgument where
// options have no meaning or a call is missing; what the barrier failed with.
// Destroying the communicator blocks until all ranks leave, or the world ends.
Result<std::unique_ptr<Communicator>> MakeCallbackCommunicator(
    int rank, int size, HostCollectives host, const CallbackOptions& options);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CALLBACKS_CALLBACK_COMMUNICATOR_H_
