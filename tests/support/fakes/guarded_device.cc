// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/fakes/guarded_device.h"

#include <sys/mman.h>

#include <map>
#include <mutex>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/tier.h"
#include "offload/kernels/exact_sum.h"
#include "offload/kernels/optimizer.h"

namespace castor {

struct GuardedDevice::Memory {
  struct Range {
    Bytes size;
    std::byte* real = nullptr;
  };

  // Of the wrapped device. REQUIRES: [at, at + size) lies in one slab; anything
  // where there is nothing to touch.
  template <typename T>
  T* Real(T* at, Bytes size) {
    if (size <= Bytes(0) || at == nullptr) return nullptr;
    const auto address = reinterpret_cast<uintptr_t>(at);
    std::lock_guard lock(mutex);
    auto range = slabs.upper_bound(address);
    CASTOR_CHECK(range != slabs.begin());
    --range;
    const Bytes offset(static_cast<int64_t>(address - range->first));
    CASTOR_CHECK_LE(offset + size, range->second.size);
    return reinterpret_cast<T*>(range->second.real + offset.count());
  }

  // `at`. REQUIRES: nothing of [at, at + size) is the device's.
  template <typename T>
  T* Host(T* at, Bytes size) {
    const auto begin = reinterpret_cast<uintptr_t>(at);
    const auto end = begin + static_cast<uintptr_t>(size.count());
    std::lock_guard lock(mutex);
    for (const auto& [guard, range] : slabs) {
      CASTOR_CHECK(end <= guard ||
                   begin >= guard + static_cast<uintptr_t>(range.size.count()));
    }
    return at;
  }

  std::mutex mutex;
  std::map<uintptr_t, Range> slabs;  // by the address handed out
};

GuardedDevice::GuardedDevice(Device* device)
    : device_(device), memory_(std::make_shared<Memory>()) {}

GuardedDevice::~GuardedDevice() = default;

DeviceFacts GuardedDevice::facts() const {
  DeviceFacts facts = device_->facts();
  facts.name = "guarded " + facts.name;
  facts.host_addressable = false;
  return facts;
}

Result<Slab> GuardedDevice::MakeSlab(Bytes size) {
  CASTOR_ASSIGN_OR_RETURN(Slab made, device_->MakeSlab(size));
  if (size == Bytes(0)) return made;
  const auto mapped = static_cast<size_t>(size.count());
  void* const guard =
      ::mmap(nullptr, mapped, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CASTOR_CHECK(guard != MAP_FAILED);
  const auto address = reinterpret_cast<uintptr_t>(guard);
  {
    std::lock_guard lock(memory_->mutex);
    memory_->slabs[address] = {size, made.data()};
  }
  auto real = std::make_shared<Slab>(std::move(made));
  return Slab(Tier::kDevice, static_cast<std::byte*>(guard), size,
              [memory = memory_, real = std::move(real), address, guard,
               mapped](std::byte*, Bytes) mutable {
                {
                  std::lock_guard lock(memory->mutex);
                  memory->slabs.erase(address);
                }
                ::munmap(guard, mapped);
                real.reset();
              });
}

Result<Slab> GuardedDevice::MakeHostSlab(Bytes size,
                                         const HostSlabOptions& options,
                                         HostSlabFacts* facts) {
  return device_->MakeHostSlab(size, options, facts);
}

std::unique_ptr<Lane> GuardedDevice::MakeLane(std::string name,
                                              Lane::OnFailure on_failure) {
  return device_->MakeLane(std::move(name), std::move(on_failure));
}

Result<std::unique_ptr<Lane>> GuardedDevice::AdoptStream(
    void* stream, std::string name, Lane::OnFailure on_failure) {
  return device_->AdoptStream(stream, std::move(name), std::move(on_failure));
}

void GuardedDevice::Copy(Lane& lane, std::byte* to, const std::byte* from,
                         Bytes size, CopyKind kind) {
  device_->Copy(lane,
                kind == CopyKind::kFromDevice ? memory_->Host(to, size)
                                              : memory_->Real(to, size),
                kind == CopyKind::kToDevice ? memory_->Host(from, size)
                                            : memory_->Real(from, size),
                size, kind);
}

void GuardedDevice::CopyIf(Lane& lane, std::byte* to, const std::byte* from,
                           Bytes size, CopyKind kind, Wanted wanted) {
  device_->CopyIf(lane,
                  kind == CopyKind::kFromDevice ? memory_->Host(to, size)
                                                : memory_->Real(to, size),
                  kind == CopyKind::kToDevice ? memory_->Host(from, size)
                                              : memory_->Real(from, size),
                  size, kind, std::move(wanted));
}

void GuardedDevice::Fill(Lane& lane, std::byte* to, Bytes size,
                         std::byte value) {
  device_->Fill(lane, memory_->Real(to, size), size, value);
}

void GuardedDevice::Convert(Lane& lane, const std::byte* from, DType from_dtype,
                            std::byte* to, DType to_dtype, Elements count) {
  device_->Convert(lane, memory_->Real(from, BytesOf(count, from_dtype)),
                   from_dtype, memory_->Real(to, BytesOf(count, to_dtype)),
                   to_dtype, count);
}

void GuardedDevice::AddInto(Lane& lane, std::byte* total, const std::byte* part,
                            DType dtype, Elements count) {
  const Bytes size = BytesOf(count, dtype);
  device_->AddInto(lane, memory_->Real(total, size), memory_->Real(part, size),
                   dtype, count);
}

void GuardedDevice::Scale(Lane& lane, std::byte* data, DType dtype,
                          Elements count, float factor) {
  device_->Scale(lane, memory_->Real(data, BytesOf(count, dtype)), dtype, count,
                 factor);
}

void GuardedDevice::AddSquares(Lane& lane, const std::byte* grad, DType dtype,
                               Elements count, uint64_t* words) {
  constexpr Bytes kWords{int64_t{ExactSum::kWords} * 8};
  device_->AddSquares(lane, memory_->Real(grad, BytesOf(count, dtype)), dtype,
                      count, memory_->Real(words, kWords));
}

void GuardedDevice::Optimize(Lane& lane, const OptimizerBuffers& buffers,
                             Elements count, const OptimizerScalars& scalars,
                             float grad_factor) {
  OptimizerBuffers real = buffers;
  const Bytes moments = BytesToHold(count, buffers.moment_dtype);
  real.grad = memory_->Real(static_cast<const std::byte*>(buffers.grad),
                            BytesOf(count, buffers.grad_dtype));
  real.param = memory_->Real(buffers.param, BytesOf(count, DType::kF32));
  real.exp_avg =
      memory_->Real(static_cast<std::byte*>(buffers.exp_avg), moments);
  real.exp_avg_sq =
      memory_->Real(static_cast<std::byte*>(buffers.exp_avg_sq), moments);
  real.low = memory_->Real(static_cast<std::byte*>(buffers.low),
                           BytesOf(count, buffers.low_dtype));
  device_->Optimize(lane, real, count, scalars, grad_factor);
}

Status GuardedDevice::status() const { return device_->status(); }

}  // namespace castor
