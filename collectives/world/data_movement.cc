// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/world/data_movement.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "collectives/rank_scope.h"
#include "offload/kernels/numbers/float_mode.h"
#include "offload/kernels/reduce.h"

namespace castor::internal {
namespace {

const std::byte* At(const void* data, Bytes offset) {
  return static_cast<const std::byte*>(data) + offset.count();
}
std::byte* At(void* data, Bytes offset) {
  return static_cast<std::byte*>(data) + offset.count();
}

void Copy(void* to, const void* from, Bytes size) {
  if (to == from || size == Bytes(0)) return;
  std::memcpy(to, from, static_cast<size_t>(size.count()));
}

Bytes CountedBytes(const CollectiveCall& call) {
  return BytesOf(Elements(call.count), call.dtype);
}

void AllGatherPart(const CollectiveCall& call, int rank,
                   std::span<const RankBuffers> buffers) {
  const Bytes shard = CountedBytes(call);
  const auto world = static_cast<int>(buffers.size());
  const RankScope& scope = call.tag.scope;
  const int among = scope.size(world);
  void* chunk = buffers[static_cast<size_t>(rank)].out;
  // From its own shard on, so that ranks do not all read the same one at once.
  for (int i = 0; i < among; ++i) {
    const int from = scope.member((rank + i) % among, rank, world);
    Copy(At(chunk, shard * scope.place(from, world)),
         buffers[static_cast<size_t>(from)].in, shard);
  }
}

void ReduceScatterPart(const CollectiveCall& call, int rank,
                       std::span<const RankBuffers> buffers) {
  const Bytes shard = CountedBytes(call);
  const auto world = static_cast<int>(buffers.size());
  const RankScope& scope = call.tag.scope;
  const int among = scope.size(world);
  const RankBuffers& own = buffers[static_cast<size_t>(rank)];
  void* out = own.out;
  if (among == 1) return Copy(out, own.in, shard);
  const int place = scope.place(rank, world);
  std::vector<const void*> sources;
  sources.reserve(static_cast<size_t>(among));
  for (int i = 0; i < among; ++i) {
    const auto from = static_cast<size_t>(scope.member(i, rank, world));
    sources.push_back(At(buffers[from].in, shard * place));
  }
  SumInOrder(sources, call.dtype, call.count, out);
}

// acc[i] = acc[i] op part[i]. Kept out of line: the caller sets the
// floating-point mode around it.
template <ReduceOp kOp, typename T>
[[gnu::noinline]] void Accumulate(T* acc, const T* part, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (kOp == ReduceOp::kSum) {
      acc[i] += part[i];
    } else {
      // A value that is not a number wins, whichever rank brings it.
      const bool not_a_number = part[i] != part[i];
      const bool better =
          kOp == ReduceOp::kMin ? part[i] < acc[i] : part[i] > acc[i];
      acc[i] = better || not_a_number ? part[i] : acc[i];
    }
  }
}

template <typename T>
void AccumulateAs(ReduceOp op, void* acc, const void* part, int64_t count) {
  auto* to = static_cast<T*>(acc);
  const auto* from = static_cast<const T*>(part);
  switch (op) {
    case ReduceOp::kSum:
      // Signed sums wrap as unsigned ones do.
      if constexpr (std::is_same_v<T, int64_t>) {
        return Accumulate<ReduceOp::kSum>(static_cast<uint64_t*>(acc),
                                          static_cast<const uint64_t*>(part),
                                          count);
      } else {
        return Accumulate<ReduceOp::kSum>(to, from, count);
      }
    case ReduceOp::kMin:
      return Accumulate<ReduceOp::kMin>(to, from, count);
    case ReduceOp::kMax:
      return Accumulate<ReduceOp::kMax>(to, from, count);
  }
}

// Which payload a sum of two NaNs has is up to the compiler.
template <typename T>
[[gnu::noinline]] void MakeNaNsCanonical(void* data, int64_t count) {
  auto* values = static_cast<T*>(data);
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] != values[i]) {
      values[i] = std::numeric_limits<T>::quiet_NaN();
    }
  }
}

void AllReducePart(const CollectiveCall& call, int rank,
                   std::span<const RankBuffers> buffers) {
  const auto world = static_cast<int64_t>(buffers.size());
  if (world == 1) return;
  const int64_t begin = call.count * rank / world;
  const int64_t count = call.count * (rank + 1) / world - begin;
  const Bytes offset = BytesOf(Elements(begin), call.dtype);
  // The first rank's slice holds the running result; only this part uses it.
  void* acc = At(buffers[0].out, offset);
  std::vector<const void*> parts;
  parts.reserve(buffers.size() - 1);
  for (const RankBuffers& each : buffers.subspan(1)) {
    parts.push_back(At(each.in, offset));
  }
  ReduceInto(acc, parts, call.dtype, call.op, count);
  const Bytes size = BytesOf(Elements(count), call.dtype);
  for (const RankBuffers& each : buffers.subspan(1)) {
    Copy(At(each.out, offset), acc, size);
  }
}

}  // namespace

void ReduceInto(void* acc, std::span<const void* const> parts, DType dtype,
                ReduceOp op, int64_t count) {
  const DefaultFloatMode mode;
  for (const void* part : parts) {
    switch (dtype) {
      case DType::kU64:
        AccumulateAs<uint64_t>(op, acc, part, count);
        break;
      case DType::kI64:
        AccumulateAs<int64_t>(op, acc, part, count);
        break;
      case DType::kF64:
        AccumulateAs<double>(op, acc, part, count);
        break;
      default:
        CASTOR_CHECK(dtype == DType::kF32);
        AccumulateAs<float>(op, acc, part, count);
    }
  }
  if (dtype == DType::kF64) MakeNaNsCanonical<double>(acc, count);
  if (dtype == DType::kF32) MakeNaNsCanonical<float>(acc, count);
}

void MoveForRank(const CollectiveCall& call, int rank,
                 std::span<const RankBuffers> buffers) {
  switch (call.kind) {
    case CollectiveKind::kAllGather:
      return AllGatherPart(call, rank, buffers);
    case CollectiveKind::kReduceScatter:
      return ReduceScatterPart(call, rank, buffers);
    case CollectiveKind::kAllReduce:
      return AllReducePart(call, rank, buffers);
    case CollectiveKind::kBroadcast:
      return Copy(buffers[static_cast<size_t>(rank)].out,
                  buffers[static_cast<size_t>(call.root)].in,
                  Bytes(call.count));
    case CollectiveKind::kBarrier:
      return;
  }
}

CommunicatorStats Traffic(const CollectiveCall& call, int rank,
                          std::span<const RankBuffers> buffers) {
  const auto world = static_cast<int64_t>(buffers.size());
  const RankBuffers& own = buffers[static_cast<size_t>(rank)];
  CommunicatorStats stats;
  stats.operations = 1;
  switch (call.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter: {
      const Bytes shard = CountedBytes(call);
      const RankScope& scope = call.tag.scope;
      const int among = scope.size(static_cast<int>(world));
      const int place = scope.place(rank, static_cast<int>(world));
      stats.bytes_sent = stats.bytes_received = shard * (among - 1);
      const bool gather = call.kind == CollectiveKind::kAllGather;
      const bool in_place = gather ? own.in == At(own.out, shard * place)
                                   : own.out == At(own.in, shard * place);
      // A sum writes its result to its place; alone, it is a copy.
      if (!in_place && (gather || among == 1)) stats.bytes_copied = shard;
      break;
    }
    case CollectiveKind::kAllReduce: {
      // Each rank gives the others what is not its slice, and its slice's
      // result to all of them; and gets as much.
      const int64_t slice =
          call.count * (rank + 1) / world - call.count * rank / world;
      stats.bytes_sent = stats.bytes_received = BytesOf(
          Elements(call.count - slice + slice * (world - 1)), call.dtype);
      if (world == 1) stats.bytes_sent = stats.bytes_received = Bytes(0);
      break;
    }
    case CollectiveKind::kBroadcast:
      if (rank == call.root) {
        stats.bytes_sent = Bytes(call.count) * (world - 1);
      } else {
        stats.bytes_received = Bytes(call.count);
      }
      break;
    case CollectiveKind::kBarrier:
      break;
  }
  return stats;
}

Bytes BytesWritten(const CollectiveCall& call, int world) {
  switch (call.kind) {
    case CollectiveKind::kAllGather:
      return CountedBytes(call) * call.tag.scope.size(world) * world;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllReduce:
      return CountedBytes(call) * world;
    case CollectiveKind::kBroadcast:
      return Bytes(call.count) * world;
    case CollectiveKind::kBarrier:
      return Bytes(0);
  }
  return Bytes(0);
}

}  // namespace castor::internal
