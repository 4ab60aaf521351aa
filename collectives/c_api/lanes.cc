// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// A trainer's own lanes, and the record of a world's engines, through the C
// ABI.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/engine/engine_handle.h"
#include "collectives/c_api/engine/turn.h"
#include "collectives/c_api/struct_sizes.h"
#include "offload/cuda/cuda_device.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/record/record_writer.h"

namespace castor::c_api {
namespace {

std::string NextName(WorldEntry* world) {
  return fmt::format("trainer {}", ++world->lanes);
}

Status CreateLane(const castor_world* handle, const castor_device* on,
                  castor_lane** lane) {
  if (handle == nullptr || lane == nullptr) {
    return InvalidArgument("world or lane is null; give both");
  }
  *lane = nullptr;
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_world> world,
                          Use<castor_world>::Of(handle));
  CASTOR_RETURN_IF_ERROR(CheckProcess(world->generation));
  if (on == nullptr) {
    *lane = GiveHandle<castor_lane>(std::make_unique<LaneEntry>(
        world.get(), nullptr,
        std::make_unique<WorkerLane>(NextName(world.get()),
                                     world->pool.get())));
    return OkStatus();
  }
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_device> device,
                          Use<castor_device>::Of(on));
  if (device->world != world.get()) {
    return InvalidArgument("the device is of another world");
  }
  *lane = GiveHandle<castor_lane>(std::make_unique<LaneEntry>(
      world.get(), device.get(),
      device->device->MakeLane(NextName(world.get()))));
  ++device->lanes;
  return OkStatus();
}

Status AdoptStream(const castor_device* handle, void* stream,
                   castor_lane** lane) {
  if (handle == nullptr || lane == nullptr) {
    return InvalidArgument("device or lane is null; give both");
  }
  *lane = nullptr;
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_device> device,
                          Use<castor_device>::Of(handle));
  CASTOR_RETURN_IF_ERROR(CheckProcess(device->world->generation));
  WorldEntry* const world = device->world;
  Result<std::unique_ptr<Lane>> adopted =
      device->device->AdoptStream(stream, NextName(world));
  if (!adopted.ok()) {
    --world->lanes;
    return adopted.status();
  }
  *lane = GiveHandle<castor_lane>(
      std::make_unique<LaneEntry>(world, device.get(), *std::move(adopted)));
  ++device->lanes;
  return OkStatus();
}

// The lane whose work the thread runs; null: none.
thread_local const castor_lane* t_working_on = nullptr;

// Work would wait for its own end.
Status CheckNotInWork(const castor_lane* lane) {
  if (lane != t_working_on) return OkStatus();
  return FailedPrecondition(fmt::format(
      "{}: the call comes from the lane's own work: make it when that is done",
      CurrentCall()));
}

Status DestroyLane(const castor_lane* handle) {
  if (handle == nullptr) return OkStatus();
  CASTOR_RETURN_IF_ERROR(CheckNotInWork(handle));
  CASTOR_ASSIGN_OR_RETURN(Claim<castor_lane> lane,
                          Claim<castor_lane>::Of(handle));
  CASTOR_RETURN_IF_ERROR(CheckProcess(lane->world->generation));
  const int64_t engines = lane->engines;
  if (engines > 0) {
    return FailedPrecondition(fmt::format(
        "{} engines were told to use the lane; destroy them first", engines));
  }
  WorldEntry* const world = lane->world;
  DeviceEntry* const device = lane->device;
  lane.Delete();
  --world->lanes;
  if (device != nullptr) --device->lanes;
  return OkStatus();
}

Status Run(const castor_lane* handle, castor_work work, void* context) {
  if (handle == nullptr || work == nullptr) {
    return InvalidArgument("lane or work is null; give both");
  }
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_lane> lane,
                          Use<castor_lane>::Of(handle));
  CASTOR_RETURN_IF_ERROR(CheckProcess(lane->world->generation));
  lane->lane->Run([work, context, handle] {
    const auto* const before = std::exchange(t_working_on, handle);
    const Status done = RunCallback("work", [&] { return work(context); });
    t_working_on = before;
    return done;
  });
  return OkStatus();
}

Status Wait(const castor_lane* handle, const castor_lane* awaited) {
  if (handle == nullptr || awaited == nullptr) {
    return InvalidArgument("lane or other is null; give both");
  }
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_lane> lane,
                          Use<castor_lane>::Of(handle));
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_lane> other,
                          Use<castor_lane>::Of(awaited));
  CASTOR_RETURN_IF_ERROR(lane->lane->CheckTakesWork());
  CASTOR_RETURN_IF_ERROR(other->lane->CheckTakesWork());
  lane->lane->Wait(other->lane->Record());
  return OkStatus();
}

}  // namespace

Status CheckLane(const EngineEntry& engine) {
  if (&engine.in_use.now() != &engine.caller) {
    return engine.in_use.now().CheckTakesWork();
  }
  if (engine.device == nullptr || engine.device->kind != CASTOR_DEVICE_CUDA) {
    return OkStatus();
  }
  return FailedPrecondition(
      "the engine's device works on streams, not on the calling thread: call "
      "castor_engine_use_lane with a lane of the device first");
}

Status WriteBehindLeases(EngineEntry& engine) {
  if (engine.leases == 0 || engine.dry || engine.device == nullptr ||
      engine.device->kind != CASTOR_DEVICE_CUDA) {
    return OkStatus();
  }
  CASTOR_RETURN_IF_ERROR(CheckLane(engine));
  std::vector<Lane*> lanes;
  engine.in_use.Since(0, [&lanes](Lane& lane) { lanes.push_back(&lane); });
  for (Lane* lane : lanes) CASTOR_RETURN_IF_ERROR(lane->CheckTakesWork());
  std::vector<Event> reads;
  for (Lane* lane : lanes) reads.push_back(lane->Record());
  engine.engine->WriteBehind(AllOf(reads));
  return OkStatus();
}

namespace {

Status Drain(const castor_lane* handle) {
  if (handle == nullptr) return InvalidArgument("lane is null");
  CASTOR_RETURN_IF_ERROR(CheckNotInWork(handle));
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_lane> lane,
                          Use<castor_lane>::Of(handle));
  CASTOR_RETURN_IF_ERROR(CheckProcess(lane->world->generation));
  return Interruptibly([&] { lane->world->Interrupt(); },
                       [&] { return lane->lane->Drain(); });
}

// The device, where the program's events can be used on its lane.
Result<CudaDevice*> CudaOf(const Use<castor_lane>& lane) {
  CASTOR_RETURN_IF_ERROR(CheckProcess(lane->world->generation));
  if (lane->device == nullptr || lane->device->kind != CASTOR_DEVICE_CUDA) {
    return Unavailable(
        "the lane is not of a CUDA device, and no other knows CUDA's events: "
        "order its work by castor_lane_wait and castor_lane_drain");
  }
  return static_cast<CudaDevice*>(lane->device->device.get());
}

// By a lane on which nothing else is, so that the event cannot be recorded
// anew before the device has the wait.
Status WaitEvent(const castor_lane* handle, void* event) {
  if (handle == nullptr || event == nullptr) {
    return InvalidArgument("lane or event is null; give both");
  }
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_lane> lane,
                          Use<castor_lane>::Of(handle));
  CASTOR_ASSIGN_OR_RETURN(CudaDevice* const device, CudaOf(lane));
  if (lane->waits == nullptr) {
    lane->waits = device->MakeLane(lane->lane->name() + " events");
  }
  CASTOR_RETURN_IF_ERROR(device->WaitForEvent(*lane->waits, event));
  lane->lane->Wait(lane->waits->Record());
  return OkStatus();
}

Status RecordEvent(const castor_lane* handle, void* event) {
  if (handle == nullptr || event == nullptr) {
    return InvalidArgument("lane or event is null; give both");
  }
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_lane> lane,
                          Use<castor_lane>::Of(handle));
  CASTOR_ASSIGN_OR_RETURN(CudaDevice* const device, CudaOf(lane));
  return Interruptibly([&] { lane->world->Interrupt(); },
                       [&] { return device->RecordEvent(*lane->lane, event); });
}

Status UseLane(EngineEntry& engine, const castor_lane* handle) {
  if (handle == nullptr) {
    engine.in_use.Use(&engine.caller);
    return OkStatus();
  }
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_lane> lane,
                          Use<castor_lane>::Of(handle));
  if (lane->world != engine.world) {
    return InvalidArgument("the lane is of another world than the engine");
  }
  if (engine.device != nullptr && engine.device->kind == CASTOR_DEVICE_CUDA &&
      lane->device != engine.device) {
    return InvalidArgument(
        "the lane is not of the engine's device: make it by "
        "castor_lane_create or castor_lane_adopt_stream with that device");
  }
  if (engine.lanes.insert(lane.get()).second) ++lane->engines;
  engine.in_use.Use(lane->lane.get());
  return OkStatus();
}

Status Record(const castor_world* handle, const char* path,
              const castor_record_options* given) {
  if (handle == nullptr || path == nullptr) {
    return InvalidArgument("world or path is null; give both");
  }
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_world> world,
                          Use<castor_world>::Of(handle));
  FileRecorderOptions options;
  if (given != nullptr) {
    CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
    const castor_record_options set = TakeStruct(*given);
    if (set.first_step < 0 || set.last_step < 0 ||
        (set.last_step > 0 && set.last_step < set.first_step)) {
      return InvalidArgument(fmt::format(
          "there are no steps from {} to {} to record: give first_step and "
          "last_step, counted from 1, or 0 for the run's own",
          set.first_step, set.last_step));
    }
    if (set.every < 0) {
      return InvalidArgument(
          fmt::format("every {} steps cannot be recorded: give every from 1 on",
                      set.every));
    }
    const auto step = [](int64_t number) {
      return static_cast<int32_t>(std::min<int64_t>(number, INT32_MAX));
    };
    options.first_step = step(set.first_step);
    options.every = step(std::max<int64_t>(1, set.every));
    if (set.last_step > 0) options.last_step = step(set.last_step);
  }
  std::lock_guard lock(world->mutex);
  if (world->recorder != nullptr) {
    return FailedPrecondition(
        "the world's engines are recorded already: end that record first");
  }
  CASTOR_ASSIGN_OR_RETURN(world->recorder, FileRecorder::Create(path, options));
  return OkStatus();
}

Status EndRecord(const castor_world* handle) {
  if (handle == nullptr) return InvalidArgument("world is null");
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_world> world,
                          Use<castor_world>::Of(handle));
  std::lock_guard lock(world->mutex);
  if (world->recorder == nullptr) {
    return FailedPrecondition("the world's engines are not recorded");
  }
  const Status closed = world->recorder->Close();
  // Engines that are there go on telling it what they do.
  world->ended_recorders.push_back(std::move(world->recorder));
  return closed;
}

}  // namespace
}  // namespace castor::c_api

extern "C" {

int32_t castor_lane_create(castor_world* world, castor_device* device,
                           castor_lane** lane) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::CreateLane(world, device, lane); });
}

int32_t castor_lane_adopt_stream(castor_device* device, void* stream,
                                 castor_lane** lane) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::AdoptStream(device, stream, lane); });
}

int32_t castor_lane_destroy(castor_lane* lane) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::DestroyLane(lane); });
}

int32_t castor_lane_run(castor_lane* lane, castor_work work, void* context) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Run(lane, work, context); });
}

int32_t castor_lane_wait(castor_lane* lane, castor_lane* other) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Wait(lane, other); });
}

int32_t castor_lane_drain(castor_lane* lane) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Drain(lane); });
}

int32_t castor_lane_wait_event(castor_lane* lane, void* event) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::WaitEvent(lane, event); });
}

int32_t castor_lane_record_event(castor_lane* lane, void* event) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::RecordEvent(lane, event); });
}

int32_t castor_engine_use_lane(castor_engine* engine, castor_lane* lane) {
  return castor::c_api::WithEngine(engine,
                                   [&](castor::c_api::EngineEntry& its) {
                                     return castor::c_api::UseLane(its, lane);
                                   });
}

int32_t castor_world_record(castor_world* world, const char* path,
                            const castor_record_options* options) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Record(world, path, options); });
}

int32_t castor_world_end_record(castor_world* world) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::EndRecord(world); });
}

}  // extern "C"
