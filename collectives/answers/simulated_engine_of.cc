// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/answers/simulated_engine_of.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/memory/sharding.h"
#include "collectives/sealing/seal_plan.h"
#include "offload/memory/tier_pool.h"
#include "placement/memory_passes.h"
#include "placement/run_event.h"

namespace castor {
namespace {

// Slots are taken in the order of chunks and states, the lowest of a class
// first.
class NvmeOffsets {
 public:
  explicit NvmeOffsets(const std::vector<SlotClass>& classes) {
    Bytes begin;
    for (const SlotClass& each : classes) {
      next_.push_back(begin);
      sizes_.push_back(each.slot_bytes);
      begin += each.slot_bytes * each.slots;
    }
  }
  Bytes Take(int32_t slot_class) {
    const auto c = static_cast<size_t>(slot_class);
    const Bytes taken = next_[c];
    next_[c] += sizes_[c];
    return taken;
  }

 private:
  std::vector<Bytes> next_;
  std::vector<Bytes> sizes_;
};

}  // namespace

SimulatedEngine SimulatedEngineOf(const SealForecast& seal,
                                  const ZeroOptions& options) {
  const ChunkLayout& layout = seal.layout;
  const Sharding& sharding = seal.sharding;
  const MemoryPlan& plan = seal.memory;
  SimulatedEngine engine;
  engine.rank = sharding.rank;
  engine.world = sharding.world;
  engine.param_ranks = sharding.pieces(StateKind::kParam);
  engine.joined_ranks = sharding.joined_ranks();
  engine.refreshed_ranks = sharding.refreshed_ranks();
  engine.problem = plan.problem;
  engine.policy = options.policy;
  engine.staging_slots = plan.staging_slots;
  engine.fetch_slots = plan.fetch_slots;
  const size_t gathered = plan.problem.slots.size();
  for (size_t c = 0; c < gathered; ++c) {
    engine.slot_bytes.push_back(plan.device_classes[c].slot_bytes);
  }
  engine.settled = {
      SlotsBytes(std::span(plan.device_classes).subspan(gathered)),
      SlotsBytes(plan.host_classes), SlotsBytes(plan.nvme_classes)};
  if (CountsNorm(options)) engine.norm = kNormBytes;
  engine.agreed_words = engine.norm.count() / 8 + kStepWords;
  NvmeOffsets offsets(plan.nvme_classes);
  for (size_t c = 0; c < plan.states.size(); ++c) {
    const ChunkId id(static_cast<int32_t>(c));
    const ChunkInfo& info = layout.chunk(id);
    const GroupInfo& group = layout.groups()[static_cast<size_t>(info.group)];
    const ShardRange updated = sharding.updated(layout, id);
    const Elements elements = updated.end - updated.begin;
    SimulatedChunk chunk;
    chunk.gathered = BytesOf(info.size, group.dtype);
    chunk.gathered_grad =
        BytesOf(info.size, sharding.dtype(StateKind::kGrad, group));
    if (group.trainable) {
      chunk.updated = elements;
      chunk.update_traffic = UpdateBytes(sharding.update_pass(group), elements);
    }
    for (size_t k = 0; k < kStateKinds; ++k) {
      const StatePlace& place = plan.states[c][k];
      if (place.bytes == Bytes(0)) continue;
      const StateKind state = static_cast<StateKind>(k);
      chunk.states[k] = {
          place.bytes, BytesOf(elements, sharding.dtype(state, group)),
          place.home,
          place.home == Tier::kNvme ? offsets.Take(place.slot_class)
                                    : Bytes(0)};
    }
    engine.chunks.push_back(chunk);
  }
  return engine;
}

}  // namespace castor
