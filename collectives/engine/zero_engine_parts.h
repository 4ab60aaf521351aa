// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_ZERO_ENGINE_PARTS_H_
#define CASTOR_COLLECTIVES_ENGINE_ZERO_ENGINE_PARTS_H_

// What the inside of ZeroEngine (zero_engine_impl.h) keeps of a parameter, of a
// chunk's gradient and of what is parked, and what a pass over states does.
// Values; owner thread only, but for what a pass does on a lane.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/unique_function.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/chunk_state.h"
#include "chunk/param_spec.h"
#include "collectives/zero_engine.h"
#include "offload/host_passes.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "offload/shards/host_window.h"
#include "offload/shards/shard_store.h"
#include "placement/run_event.h"
#include "placement/state_kind.h"

namespace castor::internal {

struct EngineParam {
  ParamSpec spec;
  Initializer initializer;
  Elements size;
  Bytes offset;           // in its chunk
  size_t group = 0;       // of groups_
  int64_t steps = 0;      // updates it has had
  bool used = false;      // had a gradient since the last step
  bool had_grad = false;  // in the step that ended last, on this rank
  // Its gradient is where it was, in the open gradient of its chunk.
  bool overwritten = false;
  int32_t held = 0;                      // leases of it, with GradMode::kReuse
  ParamState state = ParamState::kIdle;  // of its gradient, this micro-batch
};

// A chunk's gradient since the last step.
struct ChunkGrad {
  GradState state = GradState::kNone;
  Slot slot;                 // while open
  Event opened;              // the slot is zero, or has what came before
  std::vector<Lane*> lanes;  // that may write to it, the opener first
  std::vector<Event> ready;
  int64_t micro_batch = 0;  // for which the next is counted
  size_t params_left = 0;
  bool valid = false;    // its home holds a sum
  bool counted = false;  // its squares are in the norm
  bool updated = false;  // what it is for, before Step
  bool used_up = false;  // by that, and never at home
  // Where it waits for the flush, in the order of Position: when it was opened,
  // 0 where the trace has that, and when it was complete, 0 before.
  uint64_t opened_at = 0;
  uint64_t complete_at = 0;
};

// A run of elements of one parameter inside a chunk.
struct Segment {
  ParamId param;
  int64_t begin = 0;  // in the parameter
  int64_t count = 0;
  int64_t offset = 0;  // from the start of the range asked for
};

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
  std::byte* passing = nullptr;  // of a PassingGrad

 private:
  std::array<std::byte*, kStateKinds> states_ = {};
};

// A pass over states of a range of a chunk, where they live: by the device
// where it is the home of all of them, else by the host, piece by piece.
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
  std::vector<Use> uses;
  const PassingGrad* passing = nullptr;  // null: the pass has none
  // Queues the pass on the device's lane.
  UniqueFunction<void(const StateBytes&)> on_device;
  // What the host does for a part of the range.
  UniqueFunction<HostWork(ShardRange part)> on_host;
};

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

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_ZERO_ENGINE_PARTS_H_
