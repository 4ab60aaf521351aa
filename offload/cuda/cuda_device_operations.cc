// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What CudaDevice queues on lanes.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/cuda/cuda_device.h"
#include "offload/kernels/optimizer.h"
#include "offload/lanes/event.h"

namespace castor {
namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

}  // namespace

CudaLane& CudaDevice::Own(Lane& lane) const {
  auto* const own = dynamic_cast<CudaLane*>(&lane);
  CASTOR_CHECK(own != nullptr && own->core() == core_.get());
  return *own;
}

Status CudaDevice::MakeOn(Lane& lane, std::string_view call,
                          const std::function<int(CudaStream)>& make) {
  EventSource made;
  const Event done = made.event();
  // An error is the trainer's to mend, and not the device's failure.
  Own(lane).Queue(call, [core = core_, call, make,
                         made = std::move(made)](CudaStream stream) {
    const int error = make(stream);
    made.Complete(error == kCudaOk
                      ? OkStatus()
                      : InvalidArgument(core->Describe(error, call)));
    return kCudaOk;
  });
  // Where the lane has failed, nothing was called.
  const Status called = done.Wait();
  const Status failed = lane.status();
  return failed.ok() ? called : failed;
}

Status CudaDevice::WaitForEvent(Lane& lane, CudaEvent event) {
  return MakeOn(lane, "cudaStreamWaitEvent",
                [calls = &core_->calls(), event](CudaStream stream) {
                  return calls->StreamWaitEvent(stream, event);
                });
}

Status CudaDevice::RecordEvent(Lane& lane, CudaEvent event) {
  return MakeOn(lane, "cudaEventRecord",
                [calls = &core_->calls(), event](CudaStream stream) {
                  return calls->EventRecord(event, stream);
                });
}

void CudaDevice::Copy(Lane& lane, std::byte* to, const std::byte* from,
                      Bytes size, CopyKind) {
  CASTOR_CHECK_GE(size, Bytes(0));
  if (size == Bytes(0)) return;
  // The driver finds the direction: every address says whose it is.
  Own(lane).Queue("cudaMemcpyAsync",
                  [calls = &core_->calls(), to, from, size](CudaStream stream) {
                    return calls->MemcpyAsync(to, from, size.count(), stream);
                  });
}

void CudaDevice::CopyIf(Lane& lane, std::byte* to, const std::byte* from,
                        Bytes size, CopyKind, Wanted wanted) {
  CASTOR_CHECK_GE(size, Bytes(0));
  Own(lane).Queue("cudaMemcpyAsync",
                  [calls = &core_->calls(), to, from, size,
                   wanted = std::move(wanted)](CudaStream stream) {
                    if (!wanted() || size == Bytes(0)) return kCudaOk;
                    return calls->MemcpyAsync(to, from, size.count(), stream);
                  });
}

void CudaDevice::Fill(Lane& lane, std::byte* to, Bytes size, std::byte value) {
  CASTOR_CHECK_GE(size, Bytes(0));
  if (size == Bytes(0)) return;
  Own(lane).Queue("cudaMemsetAsync", [calls = &core_->calls(), to, size,
                                      value](CudaStream stream) {
    return calls->MemsetAsync(to, std::to_integer<int>(value), size.count(),
                              stream);
  });
}

void CudaDevice::Convert(Lane& lane, const std::byte* from, DType from_dtype,
                         std::byte* to, DType to_dtype, Elements count) {
  CASTOR_CHECK_GE(count, Elements(0));
  CASTOR_CHECK(IsFloat(from_dtype) && IsFloat(to_dtype));
  CASTOR_CHECK(from_dtype == DType::kF32 || to_dtype == DType::kF32);
  if (count == Elements(0)) return;
  Own(lane).Queue("the kernel that converts",
                  [calls = &core_->calls(), from, from_dtype, to, to_dtype,
                   count](CudaStream stream) {
                    return calls->Convert(stream, from, from_dtype, to,
                                          to_dtype, count.count());
                  });
}

void CudaDevice::AddInto(Lane& lane, std::byte* total, const std::byte* part,
                         DType dtype, Elements count) {
  CASTOR_CHECK_GE(count, Elements(0));
  CASTOR_CHECK(IsFloat(dtype));
  if (count == Elements(0)) return;
  Own(lane).Queue("the kernel that adds", [calls = &core_->calls(), total, part,
                                           dtype, count](CudaStream stream) {
    return calls->AddInto(stream, total, part, dtype, count.count());
  });
}

void CudaDevice::Scale(Lane& lane, std::byte* data, DType dtype, Elements count,
                       float factor) {
  CASTOR_CHECK_GE(count, Elements(0));
  CASTOR_CHECK(IsFloat(dtype));
  if (count == Elements(0)) return;
  Own(lane).Queue(
      "the kernel that scales",
      [calls = &core_->calls(), data, dtype, count, factor](CudaStream stream) {
        return calls->Scale(stream, data, dtype, count.count(), factor);
      });
}

void CudaDevice::AddSquares(Lane& lane, const std::byte* grad, DType dtype,
                            Elements count, uint64_t* words) {
  CASTOR_CHECK_GE(count, Elements(0));
  CASTOR_CHECK(IsFloat(dtype));
  if (count == Elements(0)) return;
  Own(lane).Queue(
      "the kernel that adds squares",
      [calls = &core_->calls(), grad, dtype, count, words](CudaStream stream) {
        return calls->AddSquares(stream, grad, dtype, count.count(), words);
      });
}

void CudaDevice::Optimize(Lane& lane, const OptimizerBuffers& buffers,
                          Elements count, const OptimizerScalars& scalars,
                          float grad_factor) {
  CASTOR_CHECK_GE(count, Elements(0));
  CASTOR_CHECK(IsFloat(buffers.grad_dtype));
  CASTOR_CHECK(buffers.moment_dtype == DType::kF32 ||
               buffers.moment_dtype == DType::kBF16 ||
               buffers.moment_dtype == DType::kBlocks8);
  CASTOR_CHECK(buffers.low == nullptr || (buffers.low_dtype != DType::kF32 &&
                                          IsFloat(buffers.low_dtype)));
  if (count == Elements(0)) return;
  Own(lane).Queue("the optimizer's kernel",
                  [calls = &core_->calls(), buffers, count, scalars,
                   grad_factor](CudaStream stream) {
                    return calls->Optimize(stream, buffers, count.count(),
                                           scalars, grad_factor);
                  });
}

void CudaDevice::Call(Lane& lane, StreamCall call) {
  Own(lane).Queue(
      "a program's call",
      [call = std::move(call)](CudaStream stream) { return call(stream); });
}

}  // namespace castor
