// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_COMMUNICATOR_H_
#define CASTOR_COLLECTIVES_COMMUNICATOR_H_

// What ranks do together. A rank has one Communicator. All ranks of a world
// call the same operations in the same order with the same tags and sizes. A
// mismatch is an error on every rank, with rank, chunk and moment, never a
// hang. Operations meet in the order of the calls, whichever lanes they are
// queued on.
//
// An operation is queued on a lane, and starts when the lane reaches it. The
// lane goes on when this rank's buffers may be read and reused: after every
// rank that reads them is done. No call blocks the host. Buffers must
// stay valid until then. A failed operation fails its lane, and fails the
// world: every rank's pending and later operations end with the same error. So
// does an operation that its lane skips because it failed before, and a rank
// that destroys its communicator while others come to operations it has not
// called. Buffers are given up only when no rank touches them, also then.
//
// Reductions add in rank order, ((g0 + g1) + g2) + ..., in fp32, rounded once
// to the dtype, in every backend that promises determinism.
//
// A gather or a reduce-scatter may be among the ranks of each group, or of each
// row across groups (CollectiveTag::scope, collectives/rank_scope.h): all
// groups come to it at the same place in the world's one order, with the same
// tag, and data moves among those ranks only. So ranks of different groups that
// depart from each other are found out as others are. One failure ends all
// groups. Groups need no connections, threads or buffers of their own.
//
// Owner thread only; Abort and Health may come from any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/rank_scope.h"
#include "offload/lane.h"

namespace castor {

// What an operation is about, and among whom; ranks must agree on it.
struct CollectiveTag {
  ChunkId chunk;             // not valid where it is about no chunk
  int64_t moment = -1;       // position in the step
  std::string_view purpose;  // a literal: "param", "grad", "norm", ...
  // Of AllGather and ReduceScatter; the others are among all ranks.
  // REQUIRES: it divides the world.
  RankScope scope = {};
};

enum class ReduceOp : uint8_t { kSum, kMin, kMax };

struct CommunicatorStats {
  int64_t operations = 0;
  Bytes bytes_sent;      // to other ranks, payload
  Bytes bytes_received;  // from other ranks
  Bytes bytes_copied;    // inside this rank, between buffers: 0 in place
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;

  // chunk[p * shard_elements ...] = shard of the rank whose place in the scope
  // is p, for all p: among all ranks and without groups, of rank p. In place
  // when `shard` == `chunk` + place * shard_elements. `chunk` holds as many
  // times shard_elements elements of `dtype` as ranks are in the scope.
  virtual void AllGather(Lane& lane, const void* shard, void* chunk,
                         Elements shard_elements, DType dtype,
                         const CollectiveTag& tag) = 0;

  // shard = sum over the scope's ranks of their chunk[place * shard_elements
  // ...], in rank order, whatever their places. In place when `shard` ==
  // `chunk` + place * shard_elements; otherwise they do not overlap. kF32,
  // kBF16 and kF16.
  virtual void ReduceScatter(Lane& lane, const void* chunk, void* shard,
                             Elements shard_elements, DType dtype,
                             const CollectiveTag& tag) = 0;

  // In place over `elements` of `dtype`: kU64 (kSum wraps), kI64, kF64, kF32.
  // Floats sum in rank order in their own precision; NaN wins every reduction.
  virtual void AllReduce(Lane& lane, void* data, Elements elements, DType dtype,
                         ReduceOp op, const CollectiveTag& tag) = 0;

  virtual void Broadcast(Lane& lane, void* data, Bytes bytes, int root,
                         const CollectiveTag& tag) = 0;

  virtual void Barrier(Lane& lane, const CollectiveTag& tag) = 0;

  // Ends the world: every rank's pending and later operations fail with
  // `reason`. The first reason stays. Any thread.
  virtual void Abort(Status reason) = 0;
  // Ok, or why the world ended. Any thread.
  virtual Status Health() const = 0;

  // Whether chunks and shards must lie where the host reads and writes them
  // (DeviceFacts::host_addressable), as where ranks copy from each other's
  // memory. A backend that hands them to the device says no.
  virtual bool needs_host_addressable_memory() const { return true; }
  // Whether ReduceScatter among `scope` is one of its operations: ok, or why
  // not and what to ask for instead. REQUIRES: the scope divides the world.
  virtual Status CheckReduces(const RankScope& /*scope*/) const {
    return OkStatus();
  }
  // Chunks and shards lie in [data, data + size) from now on, until it is taken
  // back, which it is before it goes. Advice: a backend may register it once,
  // so that no transfer has to, and where it cannot it copies. Blocks.
  virtual void RegisterMemory(void* /*data*/, Bytes /*size*/) {}
  virtual void UnregisterMemory(void* /*data*/) {}
  // Bytes of device memory the backend keeps for itself, for the budget.
  virtual Bytes buffer_bytes() const = 0;
  virtual CommunicatorStats stats() const = 0;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_COMMUNICATOR_H_
