// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/slab.h"
#include "tools/measure/timings.h"

namespace castor {
namespace {

constexpr int64_t kBytesEach = 2;  // of an element of bf16
constexpr int64_t kLeastCalls = 2;
constexpr int64_t kMostCalls = 32;

enum class Kind { kAllGather, kReduceScatter };

// A rank's side of what is timed.
struct Side {
  Communicator* rank;
  std::byte* memory;
  std::unique_ptr<Lane> lane;
};

void Queue(Kind kind, const Side& side, Bytes offset, Bytes size,
           int64_t moment) {
  const Elements shard(size.count() / kBytesEach / side.rank->world());
  std::byte* const chunk = side.memory + offset.count();
  std::byte* const own = chunk + shard.count() * kBytesEach * side.rank->rank();
  const CollectiveTag tag{
      .chunk = ChunkId(0), .moment = moment, .purpose = "probe"};
  if (kind == Kind::kAllGather) {
    side.rank->AllGather(*side.lane, own, chunk, shard, DType::kBF16, tag);
  } else {
    side.rank->ReduceScatter(*side.lane, chunk, own, shard, DType::kBF16, tag);
  }
}

class World {
 public:
  World(std::vector<Side> sides, Bytes buffer)
      : sides_(std::move(sides)), buffer_(buffer) {}

  // Seconds of one collective on a chunk of `size`.
  Result<double> TimeOnce(Kind kind, Bytes size) {
    const int64_t calls = std::clamp(buffer_ / size, kLeastCalls, kMostCalls);
    const EventSource gate;
    for (const Side& side : sides_) side.lane->Wait(gate.event());
    for (int64_t i = 0; i < calls; ++i) {
      if (cursor_ + size > buffer_) cursor_ = Bytes(0);
      ++moment_;
      for (const Side& side : sides_) {
        Queue(kind, side, cursor_, size, moment_);
      }
      cursor_ += size;
    }
    const auto begin = std::chrono::steady_clock::now();
    gate.Complete();
    Status failure;
    for (const Side& side : sides_) {
      const Status status = side.lane->Drain();
      if (failure.ok()) failure = status;
    }
    CASTOR_RETURN_IF_ERROR(failure);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
            .count();
    return seconds / static_cast<double>(calls);
  }

 private:
  const std::vector<Side> sides_;
  const Bytes buffer_;
  Bytes cursor_;
  int64_t moment_ = 0;
};

Result<std::vector<TimedSize>> TimeKind(World& world, Kind kind,
                                        const std::vector<Bytes>& sizes,
                                        const RoundOptions& options) {
  SizeSamples samples(sizes);
  CASTOR_RETURN_IF_ERROR(
      RunRounds(sizes.size(), options, [&](size_t size) -> Status {
        CASTOR_ASSIGN_OR_RETURN(const double seconds,
                                world.TimeOnce(kind, sizes[size]));
        samples.Add(size, seconds);
        return OkStatus();
      }));
  return samples.medians();
}

}  // namespace

Result<CollectiveTimes> TimeCollectives(
    std::span<const std::unique_ptr<Communicator>> ranks, Executor& executor,
    Bytes buffer, const std::vector<Bytes>& sizes,
    const RoundOptions& options) {
  const int64_t world = std::ssize(ranks);
  CASTOR_CHECK_GE(world, 2);
  for (const Bytes size : sizes) {
    CASTOR_CHECK_LE(size, buffer);
    CASTOR_CHECK_EQ(size.count() % (kBytesEach * world), 0);
  }
  CASTOR_ASSIGN_OR_RETURN(const Slab slab,
                          MakeHostSlab(buffer * world, {.lock = false}));
  std::vector<Side> sides;
  for (int64_t r = 0; r < world; ++r) {
    const std::string name = "rank " + std::to_string(r);
    sides.push_back({.rank = ranks[static_cast<size_t>(r)].get(),
                     .memory = slab.data() + buffer.count() * r,
                     .lane = std::make_unique<WorkerLane>(name, &executor)});
  }
  World all(std::move(sides), buffer);
  CollectiveTimes times;
  CASTOR_ASSIGN_OR_RETURN(times.all_gather,
                          TimeKind(all, Kind::kAllGather, sizes, options));
  CASTOR_ASSIGN_OR_RETURN(times.reduce_scatter,
                          TimeKind(all, Kind::kReduceScatter, sizes, options));
  return times;
}

}  // namespace castor
