// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_C_API_ENGINE_ENGINE_HANDLE_H_
#define CASTOR_COLLECTIVES_C_API_ENGINE_ENGINE_HANDLE_H_

// What the handles of training stand for. Handles count what was made of them
// and is still there, so that nothing goes before it.

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
#include "collectives/communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"
#include "offload/memory/slab.h"
#include "offload/record/record_writer.h"
#include "offload/worker_pool.h"

struct castor_world {
  // For all ranks. The first one counts.
  void Abort(const castor::Status& why) const {
    for (const auto& rank : ranks) {
      if (rank != nullptr) return rank->Abort(why);
    }
  }
  // The program asks waits to end. A wait of a world's only rank is for work
  // of this machine, which ends by itself: the call goes on to its end.
  void Interrupt() const {
    if (ranks.size() > 1) Abort(castor::c_api::InterruptedError());
  }

  // Of the process that made it.
  const int64_t generation = castor::c_api::ForkGeneration();
  // Moves bytes for all ranks; each owner thread waits for its own.
  std::unique_ptr<castor::ThreadPool> pool;
  // Updates states, for all ranks; not the process's, whose threads would stay
  // when the library is unloaded.
  std::unique_ptr<castor::WorkerPool> workers;
  castor::Log::Sink log;                     // null: to stderr
  bool processes = false;                    // its ranks are
  void (*release)(void* context) = nullptr;  // of the caller's collectives
  void* release_context = nullptr;
  // Of a world over NCCL.
  std::unique_ptr<castor::Device> gpu;
  int32_t gpu_ordinal = -1;
  // Null: that rank is another process.
  std::vector<std::unique_ptr<castor::Communicator>> ranks;
  std::unique_ptr<std::atomic<bool>[]> taken;  // by rank: had its engine
  std::atomic<int64_t> engines = 0;
  std::atomic<int64_t> lanes = 0;
  std::atomic<int64_t> devices = 0;
  std::mutex mutex;
  // Guarded by mutex.
  std::unique_ptr<castor::FileRecorder> recorder;
  std::vector<std::unique_ptr<castor::FileRecorder>> ended_recorders;
};

struct castor_device {
  explicit castor_device(castor_world* of) : world(of) {}

  castor_world* const world;
  std::unique_ptr<castor::Device> device;
  int32_t kind = CASTOR_DEVICE_SIMULATED;
  int32_t ordinal = 0;
  std::string name;
  bool host_addressable = false;    // facts(), which ask a GPU
  castor_allocator allocator = {};  // without functions: the device's own
  std::atomic<int64_t> engines = 0;
  std::atomic<int64_t> lanes = 0;
};

struct castor_lane {
  castor_lane(castor_world* in, castor_device* of,
              std::unique_ptr<castor::Lane> made)
      : world(in), device(of), lane(std::move(made)) {}

  castor_world* const world;
  castor_device* const device;          // null: of the host's threads
  std::atomic<int64_t> engines = 0;     // that were told to use it
  std::unique_ptr<castor::Lane> waits;  // for events of the program's; or null
  const std::unique_ptr<castor::Lane> lane;
};

struct castor_engine {
  explicit castor_engine(castor_world* of)
      : world(of), log(of->log ? castor::Log(of->log) : castor::Log()) {}

  castor_world* const world;
  mutable castor::c_api::Turns turns;  // what follows is used in one's turn
  castor_device* device = nullptr;     // null: one of its own
  castor::Log log;
  castor::ThreadLane caller{"caller"};
  castor::c_api::LanesInUse in_use{&caller};  // that calls are for
  std::set<castor_lane*> lanes;               // that were given
  std::unique_ptr<castor::ZeroEngine> engine;
  castor::EvaluateScope evaluation;
  bool evaluating = false;
  bool sealed = false;
  std::optional<castor::c_api::DryStep> dry;    // under way
  std::optional<castor::SealOptions> dry_seen;  // what the last one held
  bool fp32_grads = false;                      // whatever the parameters' type
  int64_t params = 0;
  // By parameter, as what follows. They stay where they are: programs look at
  // their names.
  std::deque<castor::ParamSpec> specs;
  std::vector<int64_t> sizes;  // in elements
  // From the first castor_engine_grad to castor_engine_grad_ready: the lane of
  // the last one, and when the first one was. Null: not between the two.
  struct OpenGrad {
    castor::Lane* lane = nullptr;
    int64_t mark = 0;
  };
  std::vector<OpenGrad> grads;
  std::optional<castor::PlanFile> plan;  // that the config names
  int64_t leases = 0;
  std::string loaded_trainer;
  std::string saved_path;
  std::string explanation;
  std::string shortfall;  // of the last park
  std::string trace;
  std::string stats;
};

struct castor_param_lease {
  castor_engine* engine = nullptr;
  castor::Lane* lane = nullptr;  // it began on
  int64_t mark = 0;              // and when, for LanesInUse
  castor::ParamLease lease;
  std::vector<castor::ParamId> dry;  // held by a dry step

  // Ends the lease.
  void End();
};

struct castor_memory_lease {
  castor_engine* engine = nullptr;
  castor::Lane* lane = nullptr;  // it began on
  int64_t mark = 0;              // and when, for LanesInUse
  castor::MemoryLease lease;
  castor::Bytes dry;  // borrowed of a dry step

  // Ends the lease.
  void End();
};

namespace castor::c_api {

// The device's memory, from the allocator that it was given, once what is
// queued on `lane` no longer uses it. Blocks.
Result<Slab> SlabFrom(const castor_device& device, Bytes size, Lane& lane);

// FailedPrecondition where the engine's work cannot be on the calling thread
// and no lane was given, or the stream of the lane in use is being captured.
Status CheckLane(const castor_engine& engine);

// Before a call that writes parameters: the writes come behind what the lanes
// have so far, which may read parameters under open leases. As CheckLane.
Status WriteBehindLeases(castor_engine& engine);

// InvalidArgument where there is no such parameter.
Status CheckParam(const castor_engine& engine, int32_t param);

}  // namespace castor::c_api

#endif  // CASTOR_COLLECTIVES_C_API_ENGINE_ENGINE_HANDLE_H_
