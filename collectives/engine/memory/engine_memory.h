// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_MEMORY_ENGINE_MEMORY_H_
#define CASTOR_COLLECTIVES_ENGINE_MEMORY_ENGINE_MEMORY_H_

// All of an engine that lies in budgets, or refers to what does: pools of the
// tiers, the store of states at home, the manager of what is gathered, and the
// lane for work in device memory. Seal builds it. A reseal builds another and
// exchanges the two whole. Leases of parameters, gradients and the calls of a
// step ask the manager; all other parts ask the store. Owner thread only.

#include <memory>
#include <optional>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "collectives/engine/engine_health.h"
#include "collectives/engine/engine_model.h"
#include "collectives/engine/engine_progress.h"
#include "collectives/engine/memory/planned_memory.h"
#include "collectives/engine_results.h"
#include "collectives/memory/memory_plan.h"
#include "collectives/zero_options.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "offload/memory/lease_arena.h"
#include "offload/memory/slab.h"
#include "offload/memory_manager.h"
#include "offload/shards/rank_pools.h"
#include "offload/shards/shard_store.h"
#include "placement/trace/step_trace.h"

namespace castor::internal {

class EngineMemory {
 public:
  EngineMemory(const EngineModel& model, const EngineHealth& health)
      : model_(&model), health_(&health), planned_(model) {}

  // Plans all memory and takes it. `before`: whose states come here later.
  Status Build(const SealOptions& declared, const SlabComing& coming = {},
               const RankPools* before = nullptr);
  // Then the store and the manager. `grad_slots_kept` as the manager's.
  Status BuildStore(ChunkSource* source, std::vector<bool> grad_slots_kept);
  // Slots on the device for leases and for the norm. REQUIRES, to give them
  // back: the lanes are drained.
  Status TakeOwnSlots();
  void GiveOwnSlotsBack();
  // Waits for all that is queued.
  Status Drain(const EngineLanes& lanes) const;
  // Gives all but the slabs back, once nobody uses the memory.
  Status Close();
  // Gives the slabs back. REQUIRES: closed, or nothing was queued.
  void Drop();
  bool built() const { return manager_ != nullptr; }
  // REQUIRES, from here on: built.
  const MemoryPlan& plan() const { return planned_.plan(); }
  RankPools& pools() const { return *pools_; }
  TierPool& pool(Tier tier) const { return pools_->pool(tier); }
  Device& device() const { return pools_->device(); }
  Lane& device_lane() const { return *device_lane_; }
  ShardStore& store() { return *store_; }
  MemoryManager& manager() { return *manager_; }
  LeaseArena& arena() { return arena_; }  // of memory that is borrowed
  const LeaseArena& arena() const { return arena_; }
  // Of an ExactSum: its words on the device, touched by the device lane, and in
  // host memory for their way from there. None where no norm is counted.
  const Slot& norm_slot() const { return norm_slot_; }
  Slab& norm_words() { return norm_words_; }

  // What tiers hold, what was moved, and how the manager fared.
  void Tell(EngineStats* stats) const;
  // Adds a raise of the device budget that is enough for any step.
  Status WithEnough(const Status& failed) const;
  // The range, cut at the pieces of every state.
  std::vector<ShardRange> WithinPieces(ChunkId chunk, ShardRange range) const;
  // Gradients are written over parameters that are used where they are at home.
  bool loses_home(ChunkId chunk) const {
    return model_->grads_in_place() &&
           plan().problem.param_class[chunk.index()] == kNoSlotClass;
  }

  // Asked of the manager between steps. Copies of states that change are
  // dropped; copies that the step's plan counts on then come back.
  int64_t moment() const { return built() ? manager_->moment() : -1; }
  bool pinned() const { return manager_->pinned(); }
  bool planned() const { return manager_->plan() != nullptr; }
  const Trace& planned_trace() const { return manager_->planned_trace(); }
  std::optional<StepTrace> last_step() const;  // none unless built
  Status Adopt(const StepTrace& step) { return manager_->Adopt(step); }
  void DropCopies() { manager_->DropAll(RunCause::kNone); }
  void RestoreCopies(int32_t step) { manager_->BeginStep(step); }
  void DropStale(const std::vector<bool>& of) { manager_->DropStale(of); }
  void RestoreStale() { manager_->Restore(); }
  void BeginStep(int32_t step);

 private:
  const EngineModel* model_;
  const EngineHealth* health_;
  PlannedMemory planned_;
  bool grows_ = false;  // SealOptions::grow
  // Destroyed in reverse: lanes stop before the memory their work touches goes.
  std::unique_ptr<RankPools> pools_;
  LeaseArena arena_;
  Slot lease_slot_;  // where leases lie; not valid where there are none
  Slot norm_slot_;
  Slab norm_words_;
  std::unique_ptr<ShardStore> store_;
  std::unique_ptr<MemoryManager> manager_;
  std::unique_ptr<Lane> device_lane_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_MEMORY_ENGINE_MEMORY_H_
