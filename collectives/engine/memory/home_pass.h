// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_MEMORY_HOME_PASS_H_
#define CASTOR_COLLECTIVES_ENGINE_MEMORY_HOME_PASS_H_

// A pass over states where the states live, as HomePasses (home_passes.h) runs
// it: which states of which range, what the device does and what the host does.
// Values; the work of the host runs on its lane.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/unique_function.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "offload/host_passes.h"
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

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_MEMORY_HOME_PASS_H_
