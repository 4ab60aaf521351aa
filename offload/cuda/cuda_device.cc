// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_device.h"

#include <fmt/format.h>

#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/tier.h"
#include "chunk/text/units_text.h"
#include "offload/cuda/cuda_lane_control.h"
#include "offload/cuda/pinned_slab.h"

namespace castor {
namespace {

Status NoDevice(CudaCalls& calls, int error) {
  if (error == kCudaInsufficientDriver) {
    return Unavailable(fmt::format(
        "no CUDA device can be used: {}. Install NVIDIA's driver, or a newer "
        "one (nvidia-smi shows it); in a container, start it with --gpus all",
        calls.ErrorText(error)));
  }
  return Unavailable(
      fmt::format("no CUDA device can be used: {}. See that nvidia-smi lists "
                  "it, and that CUDA_VISIBLE_DEVICES does not hide it",
                  calls.ErrorText(error)));
}

Status NotEnough(const CudaCore& core, Bytes size, Bytes free, Bytes total) {
  return Unavailable(fmt::format(
      "{} were asked of {}, which has {} free of {}: lower the device budget, "
      "or end what else uses the device (nvidia-smi shows it)",
      FormatBytesUp(size), core.name(), FormatBytes(free), FormatBytes(total)));
}

}  // namespace

Result<std::unique_ptr<CudaDevice>> CudaDevice::Open(
    CudaCalls* calls, const CudaDeviceOptions& options) {
  CASTOR_CHECK(options.executor != nullptr);
  int count = 0;
  int error = calls->GetDeviceCount(&count);
  if (error != kCudaOk) return NoDevice(*calls, error);
  if (options.ordinal < 0 || options.ordinal >= count) {
    return Unavailable(fmt::format(
        "there is no CUDA device {}: {} can be used here, counted from 0 after "
        "CUDA_VISIBLE_DEVICES",
        options.ordinal, count));
  }
  CudaDeviceProperties properties;
  error = calls->GetProperties(options.ordinal, &properties);
  if (error != kCudaOk) return NoDevice(*calls, error);
  CudaContext context = nullptr;
  error = calls->RetainContext(options.ordinal, &context);
  if (error != kCudaOk) return NoDevice(*calls, error);
  std::unique_ptr<CudaDevice> device(
      new CudaDevice(calls, options, properties, context));
  CASTOR_RETURN_IF_ERROR(device->Start());
  return device;
}

CudaDevice::CudaDevice(CudaCalls* calls, const CudaDeviceOptions& options,
                       const CudaDeviceProperties& properties,
                       CudaContext context)
    : options_(options),
      properties_(properties),
      watcher_(std::make_unique<CudaEventWatcher>(options.completion)),
      core_(std::make_shared<CudaCore>(calls, options.ordinal, context,
                                       properties.name, options.executor,
                                       watcher_.get())) {}

CudaDevice::~CudaDevice() {
  watcher_ = nullptr;  // serves what is still watched
  if (service_ == nullptr) return;
  const CudaCore::Scope scope(*core_);
  core_->calls().StreamDestroy(service_);
}

Status CudaDevice::Start() {
  const CudaCore::Scope scope(*core_);
  CudaCalls& calls = core_->calls();
  if (const int error = calls.LoadKernels(); error != kCudaOk) {
    return Unavailable(
        fmt::format("{}. This build's kernels are for sm_80 and newer; "
                    "tools/workspace/cuda.bzl says for what they are compiled",
                    core_->Describe(error, "cudaFuncGetAttributes")));
  }
  return core_->Check(calls.StreamCreate(&service_), "cudaStreamCreate");
}

Status CudaDevice::MakeCurrent() {
  return core_->Check(core_->MakeCurrent(), "cuCtxPushCurrent");
}

DeviceFacts CudaDevice::facts() const {
  DeviceFacts facts{.name = properties_.name,
                    .total = Bytes(properties_.total_bytes),
                    .free = Bytes(0),
                    .numa_node = properties_.numa_node,
                    .host_addressable = false};
  const CudaCore::Scope scope(*core_);
  int64_t free = 0;
  int64_t total = 0;
  if (core_->calls().MemGetInfo(&free, &total) == kCudaOk) {
    facts.free = Bytes(free);
    facts.total = Bytes(total);
  }
  return facts;
}

Result<Slab> CudaDevice::MakeSlab(Bytes size) {
  CASTOR_CHECK_GE(size, Bytes(0));
  CASTOR_RETURN_IF_ERROR(status());
  if (size == Bytes(0)) return Slab(Tier::kDevice, nullptr, size, {});
  const CudaCore::Scope scope(*core_);
  CudaCalls& calls = core_->calls();
  int64_t free = 0;
  int64_t total = 0;
  CASTOR_RETURN_IF_ERROR(
      core_->Check(calls.MemGetInfo(&free, &total), "cudaMemGetInfo"));
  if (size.count() > free) {
    return NotEnough(*core_, size, Bytes(free), Bytes(total));
  }
  void* data = nullptr;
  const int error = calls.Malloc(size.count(), &data);
  if (error == kCudaOutOfMemory) {
    return NotEnough(*core_, size, Bytes(free), Bytes(total));
  }
  CASTOR_RETURN_IF_ERROR(core_->Check(error, "cudaMalloc"));
  Slab slab(Tier::kDevice, static_cast<std::byte*>(data), size,
            [core = core_](std::byte* start, Bytes) {
              const CudaCore::Scope freeing(*core);
              core->Check(core->calls().Free(start), "cudaFree")
                  .IgnoreError();  // the device has it
            });
  CASTOR_RETURN_IF_ERROR(ZeroNow(data, size));
  return slab;
}

Status CudaDevice::ZeroNow(void* data, Bytes size) {
  std::lock_guard lock(service_mutex_);
  CudaCalls& calls = core_->calls();
  CASTOR_RETURN_IF_ERROR(core_->Check(
      calls.MemsetAsync(data, 0, size.count(), service_), "cudaMemsetAsync"));
  return core_->Check(calls.StreamSynchronize(service_),
                      "cudaStreamSynchronize");
}

Result<Slab> CudaDevice::MakeHostSlab(Bytes size,
                                      const HostSlabOptions& options,
                                      HostSlabFacts* facts) {
  CASTOR_RETURN_IF_ERROR(status());
  HostSlabOptions near = options;
  if (near.numa_node < 0) near.numa_node = properties_.numa_node;
  if (near.log == nullptr) near.log = options_.log;
  if (near.system == nullptr) near.system = options_.system;
  return MakePinnedSlab(core_, size, near, facts);
}

std::unique_ptr<Lane> CudaDevice::MakeLane(std::string name,
                                           Lane::OnFailure on_failure) {
  CudaStream stream = nullptr;
  Status refused = status();
  if (refused.ok()) {
    const CudaCore::Scope scope(*core_);
    const int error = core_->calls().StreamCreate(&stream);
    if (error != kCudaOk) {
      refused = Unavailable(core_->Describe(error, "cudaStreamCreate"));
    }
  }
  auto control = std::make_shared<CudaLaneControl>(std::move(on_failure));
  if (!refused.ok()) control->Fail(0, refused);
  return std::make_unique<CudaLane>(
      core_, std::move(control),
      CudaLaneOptions{
          .name = std::move(name), .stream = stream, .refused = !refused.ok()});
}

Result<std::unique_ptr<Lane>> CudaDevice::AdoptStream(
    void* stream, std::string name, Lane::OnFailure on_failure) {
  CASTOR_RETURN_IF_ERROR(status());
  CASTOR_RETURN_IF_ERROR(core_->CheckNotCapturing(stream));
  return std::unique_ptr<Lane>(std::make_unique<CudaLane>(
      core_, std::make_shared<CudaLaneControl>(std::move(on_failure)),
      CudaLaneOptions{
          .name = std::move(name), .stream = stream, .adopted = true}));
}

}  // namespace castor
