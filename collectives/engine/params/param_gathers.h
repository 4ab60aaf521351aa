// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_PARAMS_PARAM_GATHERS_H_
#define CASTOR_COLLECTIVES_ENGINE_PARAMS_PARAM_GATHERS_H_

// How parameters come from their homes to where they are used: one all-gather a
// chunk, from shards that are fetched or lie on the device. The memory manager
// calls it for a gather, and for a home that is used in place; the optimizer to
// refresh copies of what it updated. It only queues work, on the lane of
// collectives, and changes nothing of the manager but for a slot that it
// borrows. Owner thread only.

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "collectives/engine/engine_base.h"
#include "collectives/engine/rank_words.h"
#include "offload/lanes/event.h"
#include "offload/memory_manager.h"
#include "offload/shards/shard_store.h"

namespace castor::internal {

class ParamGathers final : public ChunkSource {
 public:
  explicit ParamGathers(EngineBase& base)
      : model_(base.model),
        memory_(base.memory),
        lanes_(base.lanes),
        record_(base.record),
        health_(base.health),
        words_(base) {}

  // Nothing is gathered yet of memory that is built anew.
  void Begin();
  // Whether a lease, or a gradient in its place, is on the chunk's home itself.
  bool held_at_home(ChunkId chunk) const {
    return held_at_home_[chunk.index()] > 0;
  }
  // What is queued on lanes and reads homes that are held ends with `reads`.
  void AddReaders(const Event& reads);
  // Every rank has updated part of what it keeps of the chunk's parameters: the
  // rest is gathered, in place where the home is the device, else through a
  // slot.
  void Refresh(ChunkId chunk);

  // ChunkSource.
  Event Gather(ChunkId chunk, const Slot& slot, RunCause cause,
               int64_t moment) override;
  Event FetchShard(ChunkId chunk, std::byte* to, const Event& after,
                   RunCause cause) override;
  Event GatherFrom(const std::byte* shard, const Event& ready, ChunkId chunk,
                   const Slot& slot, RunCause cause, int64_t moment) override;
  std::byte* DirectData(ChunkId chunk) override;
  Event DirectReady(ChunkId chunk) override;
  void DirectUsed(ChunkId chunk, Event last_use) override;
  bool Cancellable(ChunkId chunk) const override;
  bool Cancel(ChunkId chunk) override;
  void Raise(ChunkId chunk) override;
  // As a rank that keeps whole parameters does.
  bool DecidesAlone() const override {
    return model_.sharding.replicated(StateKind::kParam);
  }
  Status LeastOfRanks(std::span<int64_t> words) override;
  void Failed(const Status& status) override {
    health_.Fail(status).IgnoreError();
  }

 private:
  // Queues the all-gather of a chunk, whose shard is at `shard`, into a slot.
  Event GatherAround(const std::byte* shard, ChunkId chunk, const Slot& slot,
                     RunCause cause, int64_t moment);

  const EngineModel& model_;
  EngineMemory& memory_;
  const EngineLanes& lanes_;
  const EngineRecord& record_;
  EngineHealth& health_;
  const RankWords words_;
  std::vector<LoadTicket> ahead_;      // by ChunkId: of its last Gather
  std::vector<int32_t> held_at_home_;  // by ChunkId: leases of its home
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_PARAMS_PARAM_GATHERS_H_
