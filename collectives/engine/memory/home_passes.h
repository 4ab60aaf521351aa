// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_MEMORY_HOME_PASSES_H_
#define CASTOR_COLLECTIVES_ENGINE_MEMORY_HOME_PASSES_H_

// Passes over states where the states live. The device makes a pass where it is
// the home of all states of the pass, else the host does, piece by piece. A
// deposit, a count of squares, an update and a restored parameter bring the
// work of either place; this class orders the work behind other work on the
// states. Gradients, the norm and the optimizer call it; it asks the store. No
// state. Owner thread only, but for the work on a lane.

#include <memory>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "collectives/engine/engine_base.h"
#include "collectives/engine/memory/home_pass.h"
#include "offload/host_passes.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/shards/window_work.h"
#include "placement/run_event.h"

namespace castor::internal {

class HomePasses {
 public:
  explicit HomePasses(EngineBase& base)
      : model_(base.model),
        memory_(base.memory),
        lanes_(base.lanes),
        record_(base.record),
        health_(base.health) {}

  // Queues the pass in either place, behind all that it has to wait for.
  // Returns when what is passing may be reused.
  Event Run(HomePass pass);
  // Whether the pass may write aside: the host makes it, by urgency.
  bool RunsAside(const HomePass& pass);

 private:
  bool IsOnDevice(const HomePass& pass);
  std::vector<WindowRequest> RequestsOf(const HomePass& pass, ShardRange part);
  Event RunOnDevice(HomePass& pass);
  // `part`: within one piece of each state.
  Event RunOnHost(HomePass& pass, ShardRange part);
  Event RunInTurn(HomePass& pass, ShardRange part,
                  const std::vector<WindowRequest>& requests);
  // The same, once no other work of the host is more urgent.
  Event RunByUrgency(HomePass& pass, ShardRange part,
                     std::vector<WindowRequest> requests);
  // An update is queued: counts it, and describes it. Null for other passes.
  std::shared_ptr<RunEvent> NoteUpdate(const HomePass& pass, ShardRange part,
                                       bool on_device);
  // Counts a pass over host memory that the chunk's states are in, of so many
  // bytes read and written.
  void Count(ChunkId chunk, HostPass pass, Bytes traffic);
  HostPasses& host_passes() const {
    return model_.options.host_passes != nullptr ? *model_.options.host_passes
                                                 : HostPasses::Machine();
  }

  const EngineModel& model_;
  EngineMemory& memory_;
  EngineLanes& lanes_;
  const EngineRecord& record_;
  EngineHealth& health_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_MEMORY_HOME_PASSES_H_
