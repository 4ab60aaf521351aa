// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_NCCL_NCCL_STREAMS_H_
#define CASTOR_COLLECTIVES_NCCL_NCCL_STREAMS_H_

// Part of the world of NCCL (nccl_world.h).
//
// The device side of one rank: two communicators of NCCL, one for gathering and
// one for reducing, each with a lane of its own, so that neither waits for the
// other on the device. Only gathers and reductions of device memory come here,
// once all ranks have come to them.
//
// Communicators are non-blocking, so a call may be under way for a while
// (NCCL connects at the first use) without holding up who made it: Issue says
// false until then, and is asked again. Nothing here blocks but for Make, Abort
// and Finish. One thread at a time; after Make always the same one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/nccl/nccl_calls.h"
#include "collectives/world/collective_call.h"
#include "collectives/world/data_movement.h"
#include "offload/cuda/cuda_device.h"
#include "offload/cuda/cuda_lane.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/slab.h"

namespace castor::internal {

struct NcclStreamsOptions {
  CudaDevice* device = nullptr;
  NcclCalls* nccl = nullptr;
  int rank = 0;
  int world = 1;
  // Sums in rank order, by exchange into `exchange_bytes` of device memory;
  // else NCCL's own.
  bool exact = true;
  Bytes exchange_bytes;
};

// The ids of the two communicators.
using NcclIds = std::array<NcclUniqueId, 2>;

// One gather or reduction on its way to the device.
struct NcclWork {
  CollectiveCall call;
  RankBuffers buffers;
  int64_t summed = 0;      // elements, of an exact reduction
  bool exchanged = false;  // the parts of the next segment are queued
  bool begun = false;      // some of it may be on the device
  bool issued = false;     // all of it is
  Event done;              // once Issue has said true
};

class NcclStreams {
 public:
  // Takes the lanes and the memory for exchanges. Blocks.
  static Result<std::unique_ptr<NcclStreams>> Make(
      const NcclStreamsOptions& options);
  // REQUIRES: after Start, Abort or Finish was called.
  ~NcclStreams();
  NcclStreams(const NcclStreams&) = delete;
  NcclStreams& operator=(const NcclStreams&) = delete;

  // Makes the communicators, one after the other, as all ranks do. False while
  // that goes on; call again.
  Result<bool> Start(const NcclIds& ids);
  // Queues `work` on the device, or as much as goes. False while it goes on;
  // call again before anything else is issued.
  Result<bool> Issue(NcclWork* work);
  // Where what was issued of `work` ends on the device, whole or not.
  Event EndOf(const NcclWork& work);
  // Ok, or what NCCL says has gone wrong behind the calls.
  Status AsyncError();

  // Tells NCCL of memory that chunks and shards lie in, once. Nothing where it
  // does not know how. NCCL's refusal is no failure: it then copies.
  void Register(void* data, Bytes size);
  void Unregister(void* data);

  // Ends what runs on the device; later work is refused.
  void Abort();
  // Gives the communicators back, as all ranks do, until `deadline_ns`
  // (SteadyClock); then aborts.
  void Finish(int64_t deadline_ns);

  Bytes buffer_bytes() const { return exchange_.size(); }

 private:
  enum Which { kGather = 0, kReduce = 1 };
  struct Registration {
    void* data;
    std::array<void*, 2> handles;
  };

  explicit NcclStreams(const NcclStreamsOptions& options);

  // Ok(false) while a call on the communicator is under way.
  Result<bool> Settled(Which which, std::string_view call);
  // Makes `call(stream)` of NCCL on the lane.
  template <typename Call>
  Status MakeCall(Which which, std::string_view name, const Call& call);
  Status Describe(Which which, std::string_view call, int result);
  // A gather among some ranks, or with slices that are not in rank order.
  Status GatherAmong(NcclWork* work);
  // A reduction among this rank alone.
  Status CopyAlone(NcclWork* work);
  // Elements of one part of an exact reduction that are exchanged at once.
  int64_t SegmentOf(const CollectiveCall& call) const;
  // The next step of an exact reduction.
  Status Exchange(NcclWork* work);
  Status Sum(NcclWork* work);
  Status IssueOnce(NcclWork* work);

  const NcclStreamsOptions options_;
  std::array<std::unique_ptr<Lane>, 2> lanes_;
  std::array<NcclComm, 2> comms_ = {};
  int begun_ = 0;  // communicators that were begun
  Slab exchange_;
  std::vector<Registration> registrations_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_NCCL_NCCL_STREAMS_H_
