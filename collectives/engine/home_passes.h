// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_HOME_PASSES_H_
#define CASTOR_COLLECTIVES_ENGINE_HOME_PASSES_H_

// Passes over states where the states live. The device makes a pass where it is
// the home of all states of the pass, else the host does, piece by piece. A
// deposit, a count of squares, an update and a restored parameter bring the
// work of either place; this class orders the work behind other work on the
// states. Gradients, the norm and the optimizer call it; it asks the store. No
// state. Owner thread only, but for the work on a lane.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/unique_function.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "collectives/engine/engine_base.h"
#include "offload/host_passes.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/shards/host_window.h"
#include "offload/shards/window_work.h"
#include "placement/run_event.h"
#include "placement/state_kind.h"

namespace castor::internal {

// A reduced gradient on its way home: what a rank keeps of it, in device
// memory.
struct PassingGrad {
  std::byte* data = nullptr;
  Event ready;
};

// Where the bytes of a range of a chunk are while a pass works on them.
class StateBytes {
 public:
  // Null where the state is not of the pass.
  std::byte*& of(StateKind state) {
    return states_[static_cast<size_t>(state)];
  }
  std::byte* of(StateKind state) const {
    return states_[static_cast<size_t>(state)];
  }
  // Where new bytes go, of a pass that leaves the old ones; else null.
  std::byte*& aside(StateKind state) {
    return aside_[static_cast<size_t>(state)];
  }
  std::byte* aside(StateKind state) const {
    return aside_[static_cast<size_t>(state)];
  }
  std::byte* passing = nullptr;  // of a PassingGrad
  // To be called once workers have no range of the pass left to begin
  // (WorkerPool); null: nobody asks.
  UniqueFunction<void()>* begun = nullptr;

 private:
  std::array<std::byte*, kStateKinds> states_ = {};
  std::array<std::byte*, kStateKinds> aside_ = {};
};

struct HomePass {
  struct Use {
    StateKind state = StateKind::kParam;
    WindowMode mode = WindowMode::kRead;
  };
  struct HostWork {
    Bytes traffic;                                // read and written
    UniqueFunction<void(const StateBytes&)> run;  // on the host's lane
  };

  ChunkId chunk;
  ShardRange range;
  RunCause cause = RunCause::kNone;
  HostPass kind = HostPass::kMemory;  // an update is recorded, and counted
  // Of work of the host that begins by urgency, the least first; none: the pass
  // runs in its turn on the host's lane.
  std::optional<int64_t> next_use;
  PickPlace place = PickPlace::kGivesWay;
  // Of a pass by urgency that writes into spare places of shards.
  bool aside = false;
  WorkDropped dropped = nullptr;  // null: its outcome is wanted
  std::vector<Use> uses;
  const PassingGrad* passing = nullptr;  // null: the pass has none
  // Queues the pass on the device's lane.
  UniqueFunction<void(const StateBytes&)> on_device;
  // What the host does for a part of the range.
  UniqueFunction<HostWork(ShardRange part)> on_host;
};

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

#endif  // CASTOR_COLLECTIVES_ENGINE_HOME_PASSES_H_
