// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/callbacks/callback_exchange.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/kernels/reduce.h"

namespace castor::internal {
namespace {

std::byte* At(void* data, int64_t offset) {
  return static_cast<std::byte*>(data) + offset;
}
const std::byte* At(const void* data, int64_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}

void Copy(void* to, const void* from, int64_t bytes) {
  if (to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Whole cache lines, and so whole elements.
Bytes PieceOf(Bytes buffer, int size) {
  if (size == 1) return Bytes(0);  // nothing goes anywhere
  const int64_t piece = buffer.count() / (2 * size) / 64 * 64;
  return Bytes(std::max<int64_t>(piece, 2048));
}

// Whether the scope is all ranks, each at the place of its number.
bool InRankOrder(const RankScope& scope, int size) {
  if (scope.size(size) != size) return false;
  for (int rank = 0; rank < size; ++rank) {
    if (scope.place(rank, size) != rank) return false;
  }
  return true;
}

}  // namespace

template <typename Call>
Status HostCalls::Watched(const Call& call) {
  watch_(true);
  const Status status = call(seq_++);
  watch_(false);
  return status;
}

Status HostCalls::AllGather(const void* send, void* recv, Bytes bytes) {
  return Watched([&](uint64_t seq) {
    return host_.all_gather(seq, send, recv, bytes)
        .WithContext("the host's all-gather");
  });
}

Status HostCalls::AllToAll(const void* send,
                           const std::vector<int64_t>& send_bytes, void* recv,
                           const std::vector<int64_t>& recv_bytes) {
  return Watched([&](uint64_t seq) {
    return host_
        .all_to_all(seq, send, send_bytes.data(), recv, recv_bytes.data())
        .WithContext("the host's all-to-all");
  });
}

Status HostCalls::Barrier() {
  return Watched([&](uint64_t seq) {
    return host_.barrier(seq).WithContext("the host's barrier");
  });
}

CallbackExchange::CallbackExchange(int rank, int size, Bytes buffer,
                                   HostCalls* calls)
    : rank_(rank),
      size_(size),
      piece_(PieceOf(buffer, size)),
      buffer_bytes_(size == 1 ? Bytes(0)
                              : std::max(buffer, piece_ * (2 * size))),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(
          static_cast<size_t>(buffer_bytes().count()))),
      calls_(calls) {}

Status CallbackExchange::Move(const CollectiveCall& call,
                              const RankBuffers& buffers) {
  if (size_ == 1) {
    const bool bytes = call.kind == CollectiveKind::kBroadcast;
    if (bytes || call.kind == CollectiveKind::kBarrier) return OkStatus();
    Copy(buffers.out, buffers.in,
         BytesOf(Elements(call.count), call.dtype).count());
    return OkStatus();
  }
  switch (call.kind) {
    case CollectiveKind::kAllGather:
      return Gather(call, buffers);
    case CollectiveKind::kReduceScatter:
      return ReduceScatter(call, buffers);
    case CollectiveKind::kAllReduce:
      return AllReduce(call, buffers);
    case CollectiveKind::kBroadcast:
      return Broadcast(call, buffers);
    case CollectiveKind::kBarrier:
      return OkStatus();  // all have come
  }
  return OkStatus();
}

Status CallbackExchange::ByPieces(
    Bytes bytes, const std::function<Status(int64_t, int64_t)>& move) const {
  for (int64_t at = 0; at < bytes.count(); at += piece_.count()) {
    CASTOR_RETURN_IF_ERROR(
        move(at, std::min(piece_.count(), bytes.count() - at)));
  }
  return OkStatus();
}

std::vector<int64_t> CallbackExchange::ToMembers(const RankScope& scope,
                                                 int64_t bytes) const {
  std::vector<int64_t> sizes(static_cast<size_t>(size_), 0);
  for (int i = 0; i < scope.size(size_); ++i) {
    sizes[static_cast<size_t>(scope.member(i, rank_, size_))] = bytes;
  }
  return sizes;
}

Status CallbackExchange::Gather(const CollectiveCall& call,
                                const RankBuffers& buffers) {
  const RankScope& scope = call.tag.scope;
  const Bytes shard = BytesOf(Elements(call.count), call.dtype);
  if (InRankOrder(scope, size_)) {
    return calls_->AllGather(buffers.in, buffers.out, shard);
  }
  const int among = scope.size(size_);
  return ByPieces(shard, [&](int64_t at, int64_t bytes) {
    for (int i = 0; i < among; ++i) {
      Copy(buffer_.get() + i * bytes, At(buffers.in, at), bytes);
    }
    const std::vector<int64_t> sizes = ToMembers(scope, bytes);
    CASTOR_RETURN_IF_ERROR(
        calls_->AllToAll(buffer_.get(), sizes, received(0), sizes));
    for (int i = 0; i < among; ++i) {
      const int place = scope.place(scope.member(i, rank_, size_), size_);
      Copy(At(buffers.out, place * shard.count() + at), received(0) + i * bytes,
           bytes);
    }
    return OkStatus();
  });
}

Status CallbackExchange::ReduceScatter(const CollectiveCall& call,
                                       const RankBuffers& buffers) {
  const RankScope& scope = call.tag.scope;
  const Bytes shard = BytesOf(Elements(call.count), call.dtype);
  const int among = scope.size(size_);
  if (among == 1) {
    Copy(buffers.out, buffers.in, shard.count());
    return OkStatus();
  }
  const int64_t element = BytesOf(Elements(1), call.dtype).count();
  return ByPieces(shard, [&](int64_t at, int64_t bytes) {
    const void* send = buffers.in;
    if (bytes < shard.count() || !InRankOrder(scope, size_)) {
      for (int i = 0; i < among; ++i) {
        const int place = scope.place(scope.member(i, rank_, size_), size_);
        Copy(buffer_.get() + i * bytes,
             At(buffers.in, place * shard.count() + at), bytes);
      }
      send = buffer_.get();
    }
    const std::vector<int64_t> sizes = ToMembers(scope, bytes);
    CASTOR_RETURN_IF_ERROR(calls_->AllToAll(send, sizes, received(0), sizes));
    std::vector<const void*> parts;
    for (int i = 0; i < among; ++i) parts.push_back(received(0) + i * bytes);
    SumInOrder(parts, call.dtype, bytes / element, At(buffers.out, at));
    return OkStatus();
  });
}

Status CallbackExchange::AllReduce(const CollectiveCall& call,
                                   const RankBuffers& buffers) {
  const int64_t element = BytesOf(Elements(1), call.dtype).count();
  return ByPieces(
      BytesOf(Elements(call.count), call.dtype),
      [&](int64_t at, int64_t bytes) {
        CASTOR_RETURN_IF_ERROR(
            calls_->AllGather(At(buffers.in, at), received(0), Bytes(bytes)));
        std::vector<const void*> parts;
        for (int i = 1; i < size_; ++i)
          parts.push_back(received(0) + i * bytes);
        std::byte* const sum = received(0);
        if (size_ > 1) {
          ReduceInto(sum, parts, call.dtype, call.op, bytes / element);
        }
        Copy(At(buffers.out, at), sum, bytes);
        return OkStatus();
      });
}

Status CallbackExchange::Broadcast(const CollectiveCall& call,
                                   const RankBuffers& buffers) {
  return ByPieces(Bytes(call.count), [&](int64_t at, int64_t bytes) {
    const bool root = rank_ == call.root;
    std::vector<int64_t> out(static_cast<size_t>(size_), root ? bytes : 0);
    std::vector<int64_t> in(static_cast<size_t>(size_), 0);
    in[static_cast<size_t>(call.root)] = bytes;
    for (int i = 0; root && i < size_; ++i) {
      Copy(buffer_.get() + i * bytes, At(buffers.in, at), bytes);
    }
    CASTOR_RETURN_IF_ERROR(
        calls_->AllToAll(buffer_.get(), out, received(0), in));
    if (!root) Copy(At(buffers.out, at), received(0), bytes);
    return OkStatus();
  });
}

}  // namespace castor::internal
