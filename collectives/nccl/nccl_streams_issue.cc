// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The way of a gather or a reduction to the device: the calls of NCCL that it
// takes, among which ranks and in which order.

#include <algorithm>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "collectives/nccl/nccl_streams.h"
#include "collectives/rank_scope.h"

namespace castor::internal {
namespace {

// Parts of an exchange begin where the kernel reads four elements at once.
constexpr int64_t kSegmentAlignment = 128;

NcclType TypeOf(DType dtype) {
  if (dtype == DType::kF32) return NcclType::kFloat32;
  return dtype == DType::kF16 ? NcclType::kFloat16 : NcclType::kBfloat16;
}

const std::byte* At(const void* data, Elements offset, DType dtype) {
  return static_cast<const std::byte*>(data) + BytesOf(offset, dtype).count();
}
std::byte* At(void* data, Elements offset, DType dtype) {
  return static_cast<std::byte*>(data) + BytesOf(offset, dtype).count();
}

}  // namespace

template <typename Call>
Status NcclStreams::MakeCall(Which which, std::string_view name,
                             const Call& call) {
  // The lane waits for nothing but its own work, so it makes the call now.
  int result = -1;
  auto& lane = static_cast<CudaLane&>(*lanes_[which]);
  lane.Queue(name, [&](CudaStream stream) {
    result = call(stream);
    return kCudaOk;  // NCCL's result is not the runtime's
  });
  if (result == -1) return lane.status();
  if (result == kNcclSuccess || result == kNcclInProgress) return OkStatus();
  return Describe(which, name, result);
}

// Each rank of the scope sends its slice straight to the others, which is what
// NCCL's all-gather moves, too; a communicator for every scope would take
// memory of each.
Status NcclStreams::GatherAmong(NcclWork* work) {
  const CollectiveCall& call = work->call;
  const RankScope& scope = call.tag.scope;
  const int among = scope.size(options_.world);
  const int index = scope.index(options_.rank, options_.world);
  const auto place = [&](int rank) {
    return At(work->buffers.out,
              Elements(scope.place(rank, options_.world) * call.count),
              call.dtype);
  };
  const int64_t bytes = BytesOf(Elements(call.count), call.dtype).count();
  return MakeCall(kGather, "ncclSend and ncclRecv", [&](CudaStream stream) {
    NcclCalls& nccl = *options_.nccl;
    int first = nccl.GroupStart();
    const auto keep = [&first](int result) {
      if (first == kNcclSuccess || first == kNcclInProgress) first = result;
    };
    // Its own comes to its place on the same way, unless it is there.
    const bool in_place = place(options_.rank) == work->buffers.in;
    for (int step = in_place ? 1 : 0; step < among; ++step) {
      const int to =
          scope.member((index + step) % among, options_.rank, options_.world);
      const int from = scope.member((index + among - step) % among,
                                    options_.rank, options_.world);
      keep(nccl.Send(work->buffers.in, bytes, NcclType::kUint8, to,
                     comms_[kGather], stream));
      keep(nccl.Recv(place(from), bytes, NcclType::kUint8, from,
                     comms_[kGather], stream));
    }
    keep(nccl.GroupEnd());
    return first;
  });
}

Status NcclStreams::CopyAlone(NcclWork* work) {
  if (work->buffers.out == work->buffers.in) return OkStatus();
  Lane& lane = *lanes_[kReduce];
  options_.device->Copy(lane, static_cast<std::byte*>(work->buffers.out),
                        static_cast<const std::byte*>(work->buffers.in),
                        BytesOf(Elements(work->call.count), work->call.dtype),
                        CopyKind::kWithinDevice);
  return lane.status();
}

int64_t NcclStreams::SegmentOf(const CollectiveCall& call) const {
  const int others = call.tag.scope.size(options_.world) - 1;
  const int64_t stride = exchange_.size().count() / std::max(others, 1) /
                         BytesOf(Elements(1), call.dtype).count() /
                         kSegmentAlignment * kSegmentAlignment;
  CASTOR_CHECK_GT(stride, 0);
  return stride;
}

Status NcclStreams::Exchange(NcclWork* work) {
  const CollectiveCall& call = work->call;
  const DType dtype = call.dtype;
  const RankScope& scope = call.tag.scope;
  const int among = scope.size(options_.world);
  const int index = scope.index(options_.rank, options_.world);
  const int64_t stride = SegmentOf(call);
  const int64_t count = std::min(stride, call.count - work->summed);
  return MakeCall(kReduce, "ncclSend and ncclRecv", [&](CudaStream stream) {
    NcclCalls& nccl = *options_.nccl;
    int first = nccl.GroupStart();
    const auto keep = [&first](int result) {
      if (first == kNcclSuccess || first == kNcclInProgress) first = result;
    };
    for (int step = 1; step < among; ++step) {
      // Each to another one, so that no rank is everybody's first.
      const int to =
          scope.member((index + step) % among, options_.rank, options_.world);
      const int sender = (index + among - step) % among;
      const int from = scope.member(sender, options_.rank, options_.world);
      const int slot = sender < index ? sender : sender - 1;
      const int64_t place = scope.place(to, options_.world);
      keep(nccl.Send(At(work->buffers.in,
                        Elements(place * call.count + work->summed), dtype),
                     count, TypeOf(dtype), to, comms_[kReduce], stream));
      keep(nccl.Recv(At(exchange_.data(), Elements(slot * stride), dtype),
                     count, TypeOf(dtype), from, comms_[kReduce], stream));
    }
    keep(nccl.GroupEnd());
    return first;
  });
}

Status NcclStreams::Sum(NcclWork* work) {
  const CollectiveCall& call = work->call;
  const RankScope& scope = call.tag.scope;
  const int64_t place = scope.place(options_.rank, options_.world);
  const int64_t stride = SegmentOf(call);
  const int64_t count = std::min(stride, call.count - work->summed);
  const CudaParts parts = {
      .others = exchange_.data(),
      .stride = stride,
      .own = At(work->buffers.in, Elements(place * call.count + work->summed),
                call.dtype),
      .own_index = scope.index(options_.rank, options_.world),
      .parts = scope.size(options_.world)};
  void* const to = At(work->buffers.out, Elements(work->summed), call.dtype);
  auto& lane = static_cast<CudaLane&>(*lanes_[kReduce]);
  CudaCalls* const cuda = &lane.core()->calls();
  lane.Queue("the kernel that sums ranks' parts",
             [=, dtype = call.dtype](CudaStream stream) {
               return cuda->SumParts(stream, parts, dtype, count, to);
             });
  work->summed += count;
  return lane.status();
}

Status NcclStreams::IssueOnce(NcclWork* work) {
  const CollectiveCall& call = work->call;
  const Bytes bytes = BytesOf(Elements(call.count), call.dtype);
  const RankScope& scope = call.tag.scope;
  const bool plain = scope.plain(options_.world);
  if (call.kind == CollectiveKind::kAllGather) {
    work->issued = true;
    if (!plain) return GatherAmong(work);
    return MakeCall(kGather, "ncclAllGather", [&](CudaStream stream) {
      return options_.nccl->AllGather(work->buffers.in, work->buffers.out,
                                      bytes.count(), NcclType::kUint8,
                                      comms_[kGather], stream);
    });
  }
  CASTOR_CHECK(call.kind == CollectiveKind::kReduceScatter);
  if (scope.size(options_.world) == 1 && options_.world > 1) {
    work->issued = true;
    return CopyAlone(work);
  }
  if (!options_.exact && !plain) {
    return InvalidArgument(
        "NCCL's own reduce-scatter does not know groups of ranks: ask for "
        "exact reductions, or for one group of all ranks");
  }
  if (!options_.exact || options_.world == 1) {
    work->issued = true;
    return MakeCall(kReduce, "ncclReduceScatter", [&](CudaStream stream) {
      return options_.nccl->ReduceScatter(work->buffers.in, work->buffers.out,
                                          call.count, TypeOf(call.dtype),
                                          comms_[kReduce], stream);
    });
  }
  work->exchanged = !work->exchanged;
  if (work->exchanged) return Exchange(work);
  CASTOR_RETURN_IF_ERROR(Sum(work));
  work->issued = work->summed == call.count;
  return OkStatus();
}

Result<bool> NcclStreams::Issue(NcclWork* work) {
  const Which which =
      work->call.kind == CollectiveKind::kAllGather ? kGather : kReduce;
  for (;;) {
    CASTOR_ASSIGN_OR_RETURN(
        const bool settled,
        Settled(which, which == kGather ? "ncclAllGather" : "a reduction"));
    if (!settled) return false;
    if (work->issued) {
      work->done = EndOf(*work);
      return true;
    }
    work->begun = true;
    CASTOR_RETURN_IF_ERROR(IssueOnce(work));
  }
}

Event NcclStreams::EndOf(const NcclWork& work) {
  const bool gathers = work.call.kind == CollectiveKind::kAllGather;
  return lanes_[gathers ? kGather : kReduce]->Record();
}

}  // namespace castor::internal
