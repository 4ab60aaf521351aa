// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/twin/simulated_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "chunk/text/units_text.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/exact_sum.h"
#include "offload/kernels/optimizer.h"
#include "offload/kernels/reduce.h"
#include "offload/lanes/event.h"
#include "offload/memory/address_slab.h"

namespace castor {
namespace {

// Apart from the device, because a slab may outlive it.
struct DeviceMemory {
  std::mutex mutex;
  Bytes used;  // guarded by mutex
};

internal::Traffic TrafficOf(CopyKind kind) {
  switch (kind) {
    case CopyKind::kToDevice:
      return internal::Traffic::kToDevice;
    case CopyKind::kFromDevice:
      return internal::Traffic::kFromDevice;
    case CopyKind::kWithinDevice:
      break;
  }
  return internal::Traffic::kDevice;
}

size_t Size(Bytes size) { return static_cast<size_t>(size.count()); }

// What a pass over elements reads and writes.
Bytes BytesOfPass(const OptimizerBuffers& buffers,
                  const OptimizerScalars& scalars, Elements count) {
  int64_t moments = 2;
  if (scalars.kind == OptimizerKind::kLion) moments = 1;
  if (scalars.kind == OptimizerKind::kSgd) moments = scalars.beta1 != 0 ? 1 : 0;
  Bytes bytes = BytesOf(count, buffers.grad_dtype) +
                BytesOf(count, DType::kF32) * 2 +
                BytesToHold(count, buffers.moment_dtype) * (2 * moments);
  if (buffers.low != nullptr) bytes += BytesOf(count, buffers.low_dtype);
  return bytes;
}

}  // namespace

struct SimulatedDevice::Impl {
  explicit Impl(SimulatedDeviceOptions given)
      : options(std::move(given)), links(options.links) {}

  // Asked by every operation before it does anything.
  Status Begin() {
    if (!breaks.load(std::memory_order_acquire)) return OkStatus();
    std::lock_guard lock(mutex);
    if (failure.ok() && operations_left-- <= 0) failure = injected;
    return failure;
  }

  Status CurrentFailure() const {
    std::lock_guard lock(mutex);
    return failure;
  }

  // Queues `work`, which moves `traffic` over the link of `kind`.
  template <typename Work>
  void Queue(Lane& lane, CopyKind kind, Bytes traffic, Work work) {
    if (!TakesTime(kind)) {
      lane.Run([this, kind, traffic, work = std::move(work)] {
        CASTOR_RETURN_IF_ERROR(Begin());
        if (options.wires == nullptr) links.Book(kind, 0, traffic);
        if (!options.dry) work();
        return OkStatus();
      });
      return;
    }
    lane.RunAsync(
        [this, kind, traffic, work = std::move(work)](EventSource source) {
          Start(kind, traffic, work, std::move(source));
        });
  }

  bool TakesTime(CopyKind kind) const {
    return options.wires == nullptr
               ? links.throttles(kind)
               : options.wires->takes_time(TrafficOf(kind));
  }

  template <typename Work>
  void Start(CopyKind kind, Bytes traffic, const Work& work,
             EventSource source) {
    if (Status status = Begin(); !status.ok()) {
      return source.Complete(std::move(status));
    }
    if (options.wires != nullptr) {
      if (!options.dry) work();
      options.wires->Begin(TrafficOf(kind), traffic,
                           [source = std::move(source)] { source.Complete(); });
      return;
    }
    const bool takes_time = links.throttles(kind);
    const int64_t end =
        links.Book(kind, takes_time ? options.timer->NowNs() : 0, traffic);
    if (!options.dry) work();
    if (!takes_time) return source.Complete();
    CompleteAt(end, std::move(source));
  }

  void CompleteAt(int64_t end_ns, EventSource source) {
    if (options.timer->NowNs() >= end_ns) {
      source.Complete();
    } else {
      options.timer->At(end_ns,
                        [source = std::move(source)] { source.Complete(); });
    }
  }

  const SimulatedDeviceOptions options;
  SimulatedLinks links;
  const std::shared_ptr<DeviceMemory> memory = std::make_shared<DeviceMemory>();

  std::atomic<bool> breaks = false;  // a failure was injected
  mutable std::mutex mutex;
  // All guarded by mutex.
  Status injected;
  int64_t operations_left = 0;  // until it shows
  Status failure;               // once it has
};

SimulatedDevice::SimulatedDevice(SimulatedDeviceOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {
  const SimulatedDeviceOptions& had = impl_->options;
  CASTOR_CHECK_GE(had.capacity, Bytes(0));
  CASTOR_CHECK(had.executor != nullptr);
  CASTOR_CHECK(had.timer != nullptr ||
               !(had.links.to_device || had.links.from_device ||
                 had.links.within_device));
}

SimulatedDevice::~SimulatedDevice() = default;

DeviceFacts SimulatedDevice::facts() const {
  std::lock_guard lock(impl_->memory->mutex);
  return {.name = impl_->options.name,
          .total = impl_->options.capacity,
          .free = impl_->options.capacity - impl_->memory->used,
          .host_addressable = true};
}

Result<Slab> SimulatedDevice::MakeSlab(Bytes size, const SlabComing& coming) {
  CASTOR_CHECK_GE(size, Bytes(0));
  CASTOR_RETURN_IF_ERROR(status());
  const std::shared_ptr<DeviceMemory> memory = impl_->memory;
  const Bytes capacity = impl_->options.capacity;
  {
    std::lock_guard lock(memory->mutex);
    const Bytes free = capacity - memory->used;
    if (size > free) {
      return Unavailable(fmt::format(
          "{} of device memory were asked for, but {} of the {} of {} are "
          "free: lower the device budget, or simulate a larger device",
          FormatBytesUp(size), FormatBytes(free), FormatBytes(capacity),
          impl_->options.name));
    }
    memory->used += size;
  }
  Result<Slab> made =
      impl_->options.dry
          ? MakeAddressSlab(Tier::kDevice, size)
          : MakeSimulatedDeviceSlab(size, impl_->options.system, coming);
  if (!made.ok()) {
    std::lock_guard lock(memory->mutex);
    memory->used -= size;
    return made.status();
  }
  auto backing = std::make_shared<Slab>(std::move(made).value());
  std::byte* const data = backing->data();
  std::shared_ptr<SlabPages> pages = backing->pages();
  return Slab(
      Tier::kDevice, data, size,
      [memory, backing = std::move(backing)](std::byte*,
                                             Bytes given_back) mutable {
        backing.reset();
        std::lock_guard lock(memory->mutex);
        memory->used -= given_back;
      },
      std::move(pages));
}

Result<Slab> SimulatedDevice::MakeHostSlab(Bytes size,
                                           const HostSlabOptions& options,
                                           HostSlabFacts* facts) {
  CASTOR_RETURN_IF_ERROR(status());
  if (impl_->options.dry) return MakeAddressSlab(Tier::kHost, size);
  return castor::MakeHostSlab(size, options, facts);
}

std::unique_ptr<Lane> SimulatedDevice::MakeLane(std::string name,
                                                Lane::OnFailure on_failure) {
  std::unique_ptr<Lane> lane;
  if (impl_->options.instant) {
    lane = std::make_unique<ThreadLane>(std::move(name), std::move(on_failure));
  } else {
    lane = std::make_unique<WorkerLane>(
        std::move(name), impl_->options.executor, std::move(on_failure));
  }
  if (Status failure = status(); !failure.ok()) {
    lane->Wait(Event::Failed(std::move(failure)));
  }
  return lane;
}

Result<std::unique_ptr<Lane>> SimulatedDevice::AdoptStream(void*,
                                                           std::string name,
                                                           Lane::OnFailure) {
  CASTOR_RETURN_IF_ERROR(status());
  return Unavailable(fmt::format(
      "{} has no streams, so lane {} cannot be made of one: queue the work on "
      "a lane that the device makes, or run it on a GPU",
      impl_->options.name, name));
}

void SimulatedDevice::Copy(Lane& lane, std::byte* to, const std::byte* from,
                           Bytes size, CopyKind kind) {
  CASTOR_CHECK_GE(size, Bytes(0));
  if (size == Bytes(0)) return;
  const Bytes traffic = kind == CopyKind::kWithinDevice ? size * 2 : size;
  impl_->Queue(lane, kind, traffic,
               [to, from, size] { std::memcpy(to, from, Size(size)); });
}

void SimulatedDevice::CopyIf(Lane& lane, std::byte* to, const std::byte* from,
                             Bytes size, CopyKind kind, Wanted wanted) {
  lane.RunAsync([this, to, from, size, kind,
                 wanted = std::move(wanted)](EventSource source) {
    if (!wanted() || size == Bytes(0)) return source.Complete();
    impl_->Start(
        kind, kind == CopyKind::kWithinDevice ? size * 2 : size,
        [to, from, size] { std::memcpy(to, from, Size(size)); },
        std::move(source));
  });
}

void SimulatedDevice::Fill(Lane& lane, std::byte* to, Bytes size,
                           std::byte value) {
  CASTOR_CHECK_GE(size, Bytes(0));
  if (size == Bytes(0)) return;
  impl_->Queue(lane, CopyKind::kWithinDevice, size, [to, size, value] {
    std::memset(to, std::to_integer<int>(value), Size(size));
  });
}

void SimulatedDevice::Convert(Lane& lane, const std::byte* from,
                              DType from_dtype, std::byte* to, DType to_dtype,
                              Elements count) {
  CASTOR_CHECK_GE(count, Elements(0));
  CASTOR_CHECK((from_dtype == DType::kF32) != (to_dtype == DType::kF32));
  if (count == Elements(0)) return;
  impl_->Queue(lane, CopyKind::kWithinDevice,
               BytesOf(count, from_dtype) + BytesOf(count, to_dtype),
               [from, from_dtype, to, to_dtype, n = count.count()] {
                 if (to_dtype == DType::kF32) {
                   ConvertToFloat(from, from_dtype, n,
                                  reinterpret_cast<float*>(to));
                 } else {
                   ConvertFromFloat(reinterpret_cast<const float*>(from), n,
                                    to_dtype, to);
                 }
               });
}

void SimulatedDevice::AddInto(Lane& lane, std::byte* total,
                              const std::byte* part, DType dtype,
                              Elements count) {
  CASTOR_CHECK_GE(count, Elements(0));
  if (count == Elements(0)) return;
  impl_->Queue(lane, CopyKind::kWithinDevice, BytesOf(count, dtype) * 3,
               [total, part, dtype, n = count.count()] {
                 castor::AddInto(total, part, dtype, n);
               });
}

void SimulatedDevice::Scale(Lane& lane, std::byte* data, DType dtype,
                            Elements count, float factor) {
  CASTOR_CHECK_GE(count, Elements(0));
  if (count == Elements(0)) return;
  impl_->Queue(lane, CopyKind::kWithinDevice, BytesOf(count, dtype) * 2,
               [data, dtype, n = count.count(), factor] {
                 castor::Scale(data, dtype, n, factor);
               });
}

void SimulatedDevice::AddSquares(Lane& lane, const std::byte* grad, DType dtype,
                                 Elements count, uint64_t* words) {
  CASTOR_CHECK_GE(count, Elements(0));
  if (count == Elements(0)) return;
  impl_->Queue(lane, CopyKind::kWithinDevice, BytesOf(count, dtype),
               [grad, dtype, n = count.count(), words] {
                 ExactSum sum;
                 std::copy_n(words, ExactSum::kWords, sum.words().begin());
                 castor::AddSquares(grad, dtype, n, &sum);
                 std::ranges::copy(sum.words(), words);
               });
}

void SimulatedDevice::Optimize(Lane& lane, const OptimizerBuffers& buffers,
                               Elements count, const OptimizerScalars& scalars,
                               float grad_factor) {
  CASTOR_CHECK_GE(count, Elements(0));
  if (count == Elements(0)) return;
  impl_->Queue(
      lane, CopyKind::kWithinDevice, BytesOfPass(buffers, scalars, count),
      [buffers, n = count.count(), scalars, grad_factor,
       workers = impl_->options.workers] {
        if (workers == nullptr) {
          OptimizerStep(buffers, n, scalars, grad_factor);
          return;
        }
        workers->ParallelFor(n, buffers.param, [&](int64_t begin, int64_t end) {
          OptimizerStep(SkipElements(buffers, begin), end - begin, scalars,
                        grad_factor);
        });
      });
}

Status SimulatedDevice::status() const { return impl_->CurrentFailure(); }

void SimulatedDevice::Busy(Lane& lane, int64_t ns) {
  CASTOR_CHECK_GE(ns, 0);
  CASTOR_CHECK(impl_->options.timer != nullptr);
  lane.RunAsync([impl = impl_.get(), ns](EventSource source) {
    if (Status status = impl->Begin(); !status.ok()) {
      source.Complete(std::move(status));
      return;
    }
    impl->CompleteAt(impl->options.timer->NowNs() + ns, std::move(source));
  });
}

LinkUse SimulatedDevice::link_use(CopyKind kind) const {
  return impl_->links.use(kind);
}

void SimulatedDevice::InjectFailure(Status failure, int64_t operations) {
  CASTOR_CHECK(!failure.ok());
  CASTOR_CHECK_GE(operations, 0);
  std::lock_guard lock(impl_->mutex);
  impl_->injected = std::move(failure);
  impl_->operations_left = operations;
  impl_->breaks.store(true, std::memory_order_release);
}

}  // namespace castor
