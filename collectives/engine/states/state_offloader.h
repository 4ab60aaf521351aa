// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_STATES_STATE_OFFLOADER_H_
#define CASTOR_COLLECTIVES_ENGINE_STATES_STATE_OFFLOADER_H_

// How an engine leaves the device to others for a while, and comes back. States
// at home on the device go to other tiers, whose pools are extended for them.
// Between steps; what is gathered is dropped. Owner thread only; all calls
// block.

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/engine/engine_base.h"
#include "collectives/engine_results.h"
#include "offload/memory/tier_pool.h"
#include "offload/shards/shard_store.h"

namespace castor::internal {

class StateOffloader {
 public:
  explicit StateOffloader(EngineBase& base)
      : memory_(base.memory),
        lanes_(base.lanes),
        progress_(base.progress),
        health_(base.health) {}

  // As the engine's calls of these names. May be called again for another tier.
  Result<ParkResult> Park(Tier to);
  Status Resume();
  // Other memory has all states: nothing is parked in it.
  void Forget();

 private:
  struct ParkedShard {
    ShardStore::ShardId id;
    int32_t device_class = -1;
  };
  // Which shards at home on the device `to` has room for, the largest first.
  struct ParkPlan {
    std::vector<ParkedShard> moves;
    std::vector<SlotClass> classes;  // for them, on `to`
    int64_t staging_slots = 0;       // that the way there takes besides
    Bytes staging_bytes;
    Bytes moved;
    Bytes remaining;
    Bytes short_of;  // more room on `to` would take the rest
  };

  ParkPlan Plan(Tier to) const;
  Status MakeRoom(Tier to, const ParkPlan& plan);
  std::string Shortfall(Tier to, const ParkPlan& plan) const;

  EngineMemory& memory_;
  const EngineLanes& lanes_;
  StepProgress& progress_;
  const EngineHealth& health_;
  std::vector<ParkedShard> parked_;
  std::vector<ShardStore::ShardId> vacated_;  // gradients, while parked
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_STATES_STATE_OFFLOADER_H_
