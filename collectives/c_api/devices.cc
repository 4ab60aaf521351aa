// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Devices through the C ABI.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/engine/engine_handle.h"
#include "collectives/c_api/engine/turn.h"
#include "collectives/c_api/struct_sizes.h"
#include "collectives/nccl/nccl_machine.h"
#include "offload/cuda/cuda_device.h"
#include "offload/device.h"
#include "offload/memory/slab.h"
#include "offload/twin/simulated_device.h"

namespace castor::c_api {

Result<Slab> SlabFrom(const DeviceEntry& device, Bytes size, Lane& lane) {
  void* data = nullptr;
  const castor_allocator& allocator = device.allocator;
  CASTOR_RETURN_IF_ERROR(RunCallback("allocate", [&] {
    return allocator.allocate(allocator.context, size.count(), &data);
  }));
  const auto address = reinterpret_cast<uintptr_t>(data);
  constexpr uintptr_t kAlign = 256;
  if (data == nullptr || address % kAlign != 0) {
    if (data != nullptr) {
      RunNotice("release", [&] { allocator.release(allocator.context, data); });
    }
    return InvalidArgument(fmt::format(
        "the allocator's {} bytes are at {:#x}: give memory that is aligned to "
        "{} bytes",
        size.count(), address, kAlign));
  }
  Slab slab(Tier::kDevice, static_cast<std::byte*>(data), size,
            [allocator](std::byte* start, Bytes) {
              RunNotice("release",
                        [&] { allocator.release(allocator.context, start); });
            });
  CASTOR_RETURN_IF_ERROR(lane.Record().Wait());
  return slab;
}

namespace {

Status OpenDevice(const Use<castor_world>& world,
                  std::unique_ptr<Device> device, int32_t kind, int32_t ordinal,
                  castor_device** given) {
  auto made = std::make_unique<DeviceEntry>(world.get());
  made->device = std::move(device);
  made->kind = kind;
  made->ordinal = ordinal;
  const DeviceFacts facts = made->device->facts();
  made->name = facts.name;
  made->host_addressable = facts.host_addressable;
  *given = GiveHandle<castor_device>(std::move(made));
  ++world->devices;
  return OkStatus();
}

Status OpenSimulated(const castor_world* handle, int64_t bytes,
                     castor_device** device) {
  if (handle == nullptr || device == nullptr) {
    return InvalidArgument("world or device is null; give both");
  }
  *device = nullptr;
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_world> world,
                          Use<castor_world>::Of(handle));
  CASTOR_RETURN_IF_ERROR(CheckProcess(world->generation));
  if (bytes <= 0) return InvalidArgument("bytes is not positive");
  SimulatedDeviceOptions options;
  options.capacity = Bytes(bytes);
  options.executor = world->pool.get();
  options.workers = world->workers.get();
  return OpenDevice(world, std::make_unique<SimulatedDevice>(options),
                    CASTOR_DEVICE_SIMULATED, 0, device);
}

Status OpenCuda(const castor_world* handle, int32_t ordinal,
                castor_device** device) {
  if (handle == nullptr || device == nullptr) {
    return InvalidArgument("world or device is null; give both");
  }
  *device = nullptr;
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_world> world,
                          Use<castor_world>::Of(handle));
  CASTOR_RETURN_IF_ERROR(CheckProcess(world->generation));
  CASTOR_ASSIGN_OR_RETURN(CudaCalls* const calls, FindCuda());
  if (world->gpu_ordinal >= 0 && ordinal != world->gpu_ordinal) {
    return InvalidArgument(fmt::format(
        "the world's rank is GPU {} to NCCL, and GPU {} is asked for: open "
        "that one, or make the world with gpu = {}",
        world->gpu_ordinal, ordinal, ordinal));
  }
  CASTOR_ASSIGN_OR_RETURN(
      std::unique_ptr<CudaDevice> opened,
      CudaDevice::Open(calls,
                       {.ordinal = ordinal, .executor = world->pool.get()}));
  return OpenDevice(world, std::move(opened), CASTOR_DEVICE_CUDA, ordinal,
                    device);
}

Status GetInfo(const castor_device* handle, castor_device_info* given) {
  if (handle == nullptr || given == nullptr) {
    return InvalidArgument("device or info is null; give both");
  }
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_device> device,
                          Use<castor_device>::Of(handle));
  CASTOR_RETURN_IF_ERROR(CheckProcess(device->world->generation));
  CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
  const DeviceFacts facts = device->device->facts();
  castor_device_info info = {};
  info.kind = device->kind;
  info.ordinal = device->ordinal;
  info.name = device->name.c_str();
  info.total_bytes = facts.total.count();
  info.free_bytes = facts.free.count();
  info.host_addressable = facts.host_addressable ? 1 : 0;
  GiveStruct(info, given);
  return OkStatus();
}

Status SetAllocator(const castor_device* handle,
                    const castor_allocator* given) {
  if (handle == nullptr) return InvalidArgument("device is null");
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_device> device,
                          Use<castor_device>::Of(handle));
  CASTOR_RETURN_IF_ERROR(CheckProcess(device->world->generation));
  castor_allocator allocator = {};
  if (given != nullptr) {
    CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
    allocator = TakeStruct(*given);
    if (allocator.allocate == nullptr || allocator.release == nullptr) {
      return InvalidArgument("allocate or release is null; give both");
    }
  }
  if (device->engines > 0) {
    return FailedPrecondition(
        "engines have memory of the device: set its allocator before they are "
        "made");
  }
  device->allocator = allocator;
  return OkStatus();
}

Status DestroyDevice(const castor_device* handle) {
  if (handle == nullptr) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(Claim<castor_device> device,
                          Claim<castor_device>::Of(handle));
  CASTOR_RETURN_IF_ERROR(CheckProcess(device->world->generation));
  const int64_t users = device->engines + device->lanes;
  if (users > 0) {
    return FailedPrecondition(fmt::format(
        "{} engines and lanes of the device are there; destroy them first",
        users));
  }
  WorldEntry* const world = device->world;
  device.Delete();
  --world->devices;
  return OkStatus();
}

}  // namespace
}  // namespace castor::c_api

extern "C" {

using castor::c_api::ThroughTheDoor;

int32_t castor_device_open_simulated(castor_world* world, int64_t bytes,
                                     castor_device** device) {
  return ThroughTheDoor(
      [&] { return castor::c_api::OpenSimulated(world, bytes, device); });
}

int32_t castor_device_open_cuda(castor_world* world, int32_t ordinal,
                                castor_device** device) {
  return ThroughTheDoor(
      [&] { return castor::c_api::OpenCuda(world, ordinal, device); });
}

int32_t castor_device_get_info(const castor_device* device,
                               castor_device_info* info) {
  return ThroughTheDoor([&] { return castor::c_api::GetInfo(device, info); });
}

int32_t castor_device_set_allocator(castor_device* device,
                                    const castor_allocator* allocator) {
  return ThroughTheDoor(
      [&] { return castor::c_api::SetAllocator(device, allocator); });
}

int32_t castor_device_destroy(castor_device* device) {
  return ThroughTheDoor([&] { return castor::c_api::DestroyDevice(device); });
}

}  // extern "C"
