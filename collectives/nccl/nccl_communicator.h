// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_
#define CASTOR_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_

// Ranks that are GPUs: gathers and reductions of chunks run on the device by
// NCCL, on two communicators with a stream each, one for gathering and one for
// reducing, so that prefetch and gradients do not queue behind each other.
//
// Beside NCCL every rank has a connection to rank 0 (TCP, through which a
// token lets ranks of this world only), and a thread that serves it and watches
// NCCL. When a rank's lane comes to an operation, the rank says so and what it
// means by it; when all have come and mean the same, rank 0 lets them go, and
// all start it. So
//
//   - operations start in one order on all ranks, whatever the lanes do, as
//     NCCL demands, also between its two communicators;
//   - what ranks do not agree on never reaches NCCL: it ends in an error that
//     names rank, chunk and moment, with the same words on every rank;
//   - no kernel of NCCL waits on the device for a rank that is late, which
//     would take multiprocessors from the computing and, where that rank died,
//     hang until NCCL is aborted;
//   - sums, extremes and broadcasts of host data (norms, budgets, digests: a
//     few words) need no device: they travel with those messages, and rank 0
//     combines them in rank order with the in-process backend's own loops.
//
// The price is a round trip to rank 0 between a lane's coming to an operation
// and its start, tens of microseconds in one rack, which prefetching hides as
// it hides the transfer. Rank 0's thread handles world - 1 messages per
// operation.
//
// AllGather and ReduceScatter take memory of the device, or what it can
// address; AllReduce and Broadcast take host memory, 512 MiB at most, and are
// for much less.
//
// Reductions. Reduce::kExact exchanges the parts (ncclSend, ncclRecv) and adds
// them in rank order with a kernel, segment by segment, to the bits of every
// other backend. Reduce::kNative is NCCL's ncclReduceScatter, which needs no
// memory and sends less where the network reduces, and keeps to rank order for
// two ranks only. It knows one group of all ranks only (rank_scope.h); sums of
// slices for smaller groups take kExact, and an engine that asks for them with
// kNative is refused at Seal.
//
// A world ends (Abort, a mismatch, a rank that died, NCCL's errors, a timeout)
// once for all ranks: NCCL's communicators are aborted, and operations on the
// device end when no rank's device touches their buffers any more.
//
// The lane that queued an operation goes on when the host knows that it went
// well, never on the device alone: after an abort NCCL's kernels end like good
// ones.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/nccl/id_exchange.h"

namespace castor {

class CudaDevice;
class NcclCalls;
namespace internal {
class NcclHost;
}  // namespace internal

struct NcclOptions {
  int rank = 0;
  int world = 1;
  // REQUIRED; all outlive the communicator. The exchange is used by Create
  // only, and may go after it.
  CudaDevice* device = nullptr;
  NcclCalls* nccl = nullptr;
  IdExchange* exchange = nullptr;

  enum class Reduce : uint8_t { kExact, kNative };
  Reduce reduce = Reduce::kExact;
  // Device memory for exact reductions, with more than one rank: what is
  // exchanged at once. Counts in buffer_bytes(). At least 512 bytes per rank.
  Bytes exchange_bytes = MiB(16);

  // An operation that some rank has not come to, or that has not ended on the
  // device, within this time ends the world; 0 waits for ever.
  int64_t timeout_ns = 120'000'000'000;
  // The same for Create.
  int64_t start_timeout_ns = 300'000'000'000;
  // Of rank 0: the name or number under which the others reach its host. Empty:
  // $CASTOR_CONTROL_HOST, or all addresses of its interfaces, tried in turn.
  std::string control_host;
  // Of rank 0, where the others have its invitation already: `exchange` is not
  // used. Create uses it up.
  internal::NcclHost* host = nullptr;
  // Asked every tenth of a second, on the calling thread, while Create waits
  // for other ranks: where it says so, Create ends as Aborted on all of them.
  std::function<bool()> give_up;
};

// Joins the world. Blocks until all its ranks have, or it cannot be:
// Unavailable or FailedPrecondition, saying which rank lacks what, on every
// rank that came; InvalidArgument where options have no meaning. To be
// destroyed on its owner thread: that waits until the operations called before
// have ended, and is best done by all ranks, after a Barrier.
Result<std::unique_ptr<Communicator>> MakeNcclCommunicator(
    const NcclOptions& options);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_
