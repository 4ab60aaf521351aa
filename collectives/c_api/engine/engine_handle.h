// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_C_API_ENGINE_ENGINE_HANDLE_H_
#define CASTOR_COLLECTIVES_C_API_ENGINE_ENGINE_HANDLE_H_

// What the handles of training stand for. An entry counts the entries that were
// made of the entry and still live, so that a call destroys them first.

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "collectives/answers/plan_file.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/engine/dry_step.h"
#include "collectives/c_api/engine/lanes_in_use.h"
#include "collectives/c_api/engine/turn.h"
#include "collectives/c_api/handles.h"
#include "collectives/communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"
#include "offload/memory/slab.h"
#include "offload/record/record_writer.h"
#include "offload/worker_pool.h"

namespace castor::c_api {

struct WorldEntry {
  // For all ranks. The first one counts.
  void Abort(const Status& why) const {
    for (const auto& rank : ranks) {
      if (rank != nullptr) return rank->Abort(why);
    }
  }
  // The program asks waits to end. A wait of a world's only rank is for work
  // of this machine, which ends by itself: the call goes on to its end.
  void Interrupt() const {
    if (ranks.size() > 1) Abort(InterruptedError());
  }

  // Of the process that made it.
  const int64_t generation = ForkGeneration();
  // Moves bytes for all ranks; each owner thread waits for its own.
  std::unique_ptr<ThreadPool> pool;
  // Updates states, for all ranks; not the process's, whose threads would stay
  // when the library is unloaded.
  std::unique_ptr<WorkerPool> workers;
  Log::Sink log;                             // null: to stderr
  bool processes = false;                    // its ranks are
  void (*release)(void* context) = nullptr;  // of the caller's collectives
  void* release_context = nullptr;
  // Of a world over NCCL.
  std::unique_ptr<Device> gpu;
  int32_t gpu_ordinal = -1;
  // Null: that rank is another process.
  std::vector<std::unique_ptr<Communicator>> ranks;
  std::unique_ptr<std::atomic<bool>[]> taken;  // by rank: has an engine
  std::atomic<int64_t> engines = 0;
  std::atomic<int64_t> lanes = 0;
  std::atomic<int64_t> devices = 0;
  std::mutex mutex;
  // Guarded by mutex.
  std::unique_ptr<FileRecorder> recorder;
  std::vector<std::unique_ptr<FileRecorder>> ended_recorders;
};

struct DeviceEntry {
  explicit DeviceEntry(WorldEntry* of) : world(of) {}

  WorldEntry* const world;
  std::unique_ptr<Device> device;
  int32_t kind = CASTOR_DEVICE_SIMULATED;
  int32_t ordinal = 0;
  std::string name;
  bool host_addressable = false;    // facts(), which ask a GPU
  castor_allocator allocator = {};  // without functions: the device's own
  std::atomic<int64_t> engines = 0;
  std::atomic<int64_t> lanes = 0;
};

struct LaneEntry {
  LaneEntry(WorldEntry* in, DeviceEntry* of, std::unique_ptr<Lane> made)
      : world(in), device(of), lane(std::move(made)) {}

  WorldEntry* const world;
  DeviceEntry* const device;         // null: of the host's threads
  std::atomic<int64_t> engines = 0;  // that were told to use it
  std::unique_ptr<Lane> waits;       // for events of the program's; or null
  const std::unique_ptr<Lane> lane;
};

struct EngineEntry {
  explicit EngineEntry(WorldEntry* of)
      : world(of), log(of->log ? Log(of->log) : Log()) {}

  WorldEntry* const world;
  int rank = 0;
  mutable Turns turns;  // what follows is used in one's turn
  const castor_engine* handle = nullptr;
  bool gone = false;  // for calls that waited while it was destroyed
  DeviceEntry* device = nullptr;  // null: one of its own
  Log log;
  ThreadLane caller{"caller"};
  LanesInUse in_use{&caller};  // that calls are for
  std::set<LaneEntry*> lanes;  // that were given
  std::unique_ptr<ZeroEngine> engine;
  EvaluateScope evaluation;
  bool evaluating = false;
  bool sealed = false;
  std::optional<DryStep> dry;           // under way
  std::optional<SealOptions> dry_seen;  // what the last one held
  bool fp32_grads = false;              // whatever the parameters' type
  int64_t params = 0;
  // By parameter, as what follows. They stay where they are: programs look at
  // their names.
  std::deque<ParamSpec> specs;
  std::vector<int64_t> sizes;  // in elements
  // From the first castor_engine_grad to castor_engine_grad_ready: the lane of
  // the last one, and when the first one was. Null: not between the two.
  struct OpenGrad {
    Lane* lane = nullptr;
    int64_t mark = 0;
  };
  std::vector<OpenGrad> grads;
  std::optional<PlanFile> plan;  // that the config names
  int64_t leases = 0;
  std::string loaded_trainer;
  std::string saved_path;
  std::string explanation;
  std::string shortfall;  // of the last park
  std::string trace;
  std::string stats;
};

struct ParamLeaseEntry {
  EngineEntry* engine = nullptr;
  Lane* lane = nullptr;  // it began on
  int64_t mark = 0;      // and when, for LanesInUse
  ParamLease lease;
  std::vector<ParamId> dry;  // held by a dry step

  // Ends the lease.
  void End();
};

struct MemoryLeaseEntry {
  EngineEntry* engine = nullptr;
  Lane* lane = nullptr;  // it began on
  int64_t mark = 0;      // and when, for LanesInUse
  MemoryLease lease;
  Bytes dry;  // borrowed of a dry step

  // Ends the lease.
  void End();
};

template <>
struct StandsFor<castor_world> : EntryOf<WorldEntry, HandleKind::kWorld> {};

template <>
struct StandsFor<castor_device> : EntryOf<DeviceEntry, HandleKind::kDevice> {};

template <>
struct StandsFor<castor_lane> : EntryOf<LaneEntry, HandleKind::kLane> {};

template <>
struct StandsFor<castor_engine> : EntryOf<EngineEntry, HandleKind::kEngine> {};

template <>
struct StandsFor<castor_param_lease>
    : EntryOf<ParamLeaseEntry, HandleKind::kParamLease> {};

template <>
struct StandsFor<castor_memory_lease>
    : EntryOf<MemoryLeaseEntry, HandleKind::kMemoryLease> {};

// The device's memory, from the allocator that it was given, once what is
// queued on `lane` no longer uses it. Blocks.
Result<Slab> SlabFrom(const DeviceEntry& device, Bytes size, Lane& lane);

// FailedPrecondition where the engine's work cannot be on the calling thread
// and no lane was given, or the stream of the lane in use is being captured.
Status CheckLane(const EngineEntry& engine);

// Before a call that writes parameters: the writes come behind what the lanes
// have so far, which may read parameters under open leases. As CheckLane.
Status WriteBehindLeases(EngineEntry& engine);

// InvalidArgument where there is no such parameter.
Status CheckParam(const EngineEntry& engine, int32_t param);

}  // namespace castor::c_api

#endif  // CASTOR_COLLECTIVES_C_API_ENGINE_ENGINE_HANDLE_H_
