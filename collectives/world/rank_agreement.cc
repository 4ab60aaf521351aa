// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/world/rank_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"

namespace castor::internal {
namespace {

// Of a failure that one rank tells the others.
constexpr size_t kMostMessage = 2048;

}  // namespace

// In two rounds, so that the usual answer is one small all-reduce: which rank
// failed first, if any, and what it has to say.
Status AgreeOn(Communicator& comm, Lane& lane, const Status& own, uint64_t same,
               std::string_view purpose) {
  const int world = comm.world();
  if (world == 1) return own;
  const CollectiveTag tag{ChunkId(), -1, purpose};
  const int64_t hash = static_cast<int64_t>(same >> 2);
  std::array<int64_t, 3> least = {own.ok() ? world : comm.rank(), hash, -hash};
  comm.AllReduce(lane, least.data(), Elements(least.size()), DType::kI64,
                 ReduceOp::kMin, tag);
  CASTOR_RETURN_IF_ERROR(lane.Record().Wait());
  if (least[0] == world) {
    if (least[1] == -least[2]) return OkStatus();
    return InvalidArgument(fmt::format(
        "the ranks do not {} the same: folder, step, options and files must be "
        "the same on every rank",
        purpose));
  }
  std::array<uint64_t, 2 + kMostMessage / sizeof(uint64_t)> words = {};
  if (least[0] == comm.rank()) {
    const size_t length = std::min(own.message().size(), kMostMessage);
    words[0] = static_cast<uint64_t>(own.code());
    words[1] = length;
    std::memcpy(words.data() + 2, own.message().data(), length);
  }
  comm.AllReduce(lane, words.data(), Elements(words.size()), DType::kU64,
                 ReduceOp::kSum, tag);
  CASTOR_RETURN_IF_ERROR(lane.Record().Wait());
  const std::string message(reinterpret_cast<const char*>(words.data() + 2),
                            words[1]);
  return Status(static_cast<ErrorCode>(words[0]),
                fmt::format("rank {}: {}", least[0], message));
}

Status SumOverRanks(Communicator& comm, Lane& lane, std::span<uint64_t> sums,
                    std::string_view purpose) {
  if (comm.world() == 1 || sums.empty()) return OkStatus();
  comm.AllReduce(lane, sums.data(), Elements(static_cast<int64_t>(sums.size())),
                 DType::kU64, ReduceOp::kSum, {ChunkId(), -1, purpose});
  return lane.Record().Wait();
}

}  // namespace castor::internal
