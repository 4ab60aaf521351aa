// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_MEMORY_PLANNED_MEMORY_H_
#define CASTOR_COLLECTIVES_ENGINE_MEMORY_PLANNED_MEMORY_H_

// Part of EngineMemory (engine_memory.h).
//
// What the budgets of an engine are spent on: the memory plan of the declared
// step, and the pools and the staging that follow from the plan. Takes no
// memory. Owner thread only.

#include <cstdint>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/engine/engine_model.h"
#include "collectives/memory/memory_plan.h"
#include "collectives/zero_options.h"
#include "offload/shards/rank_pools.h"

namespace castor::internal {

class PlannedMemory {
 public:
  explicit PlannedMemory(const EngineModel& model) : model_(&model) {}

  // `spare_places`: whether updates may be guessed, where the options ask so.
  Status Make(const SealOptions& declared, bool spare_places);
  // REQUIRES, from here on: made.
  const MemoryPlan& plan() const { return plan_; }
  // Says what of the links is unknown and what deadlines lack.
  void Warn() const;
  // But for what comes from other pools.
  RankPoolsOptions PoolsOptions() const;
  // Of staging, how many slots updates that begin by urgency have alone.
  int64_t UpdateSlots() const;

  // Of a dry engine that moves shards whole: by so much more host memory for
  // staging than the budget has, and the pieces in which moves are counted.
  Bytes widened() const { return widened_; }
  Elements counted_piece() const { return counted_piece_; }

 private:
  Result<MemoryPlan> PlanAll(const SealOptions& declared,
                             bool spare_places) const;
  // Staging slots for whole shards of a dry engine, beside the budget.
  void WidenStaging();

  const EngineModel* model_;
  MemoryPlan plan_;
  Bytes widened_;
  Elements counted_piece_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_MEMORY_PLANNED_MEMORY_H_
