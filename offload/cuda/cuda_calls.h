// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_CUDA_CALLS_H_
#define CASTOR_OFFLOAD_CUDA_CUDA_CALLS_H_

// Every call that Castor makes of the CUDA runtime and driver, and its own
// kernels, as one table: cuda_runtime_calls.h binds it to the real thing, a
// fake stands in for it in tests (tests/support/fakes/fake_cuda.h). Its types
// are our own, so that everything but the binding and the kernels compiles
// without the toolkit. Implementations are thread-safe.
//
// Each call returns an error code of the runtime (cudaError_t; driver calls are
// translated), 0 for success, and clears what the runtime remembers as its last
// error, which belongs to the trainer. Calls work in the calling thread's
// current context. Where a thread has none, the runtime makes one on device 0,
// and the driver refuses: CudaCore::Scope goes before every call.

#include <cstddef>
#include <cstdint>
#include <string>

#include "chunk/base/dtype.h"

namespace castor {

struct OptimizerBuffers;
struct OptimizerScalars;

// cudaStream_t and cudaEvent_t. A null stream is the default stream.
using CudaStream = void*;
using CudaEvent = void*;
using CudaContext = void*;  // CUcontext

inline constexpr int kCudaOk = 0;
inline constexpr int kCudaInvalidValue = 1;
inline constexpr int kCudaOutOfMemory = 2;
inline constexpr int kCudaInsufficientDriver = 35;
inline constexpr int kCudaNoDevice = 100;
inline constexpr int kCudaInvalidContext = 201;
inline constexpr int kCudaInvalidHandle = 400;
inline constexpr int kCudaNotReady = 600;
inline constexpr int kCudaNotSupported = 801;
// The errors of capturing a stream into a graph lie between.
inline constexpr int kCudaCaptureUnsupported = 900;
inline constexpr int kCudaCapturedEvent = 907;
inline constexpr int kCudaCaptureWrongThread = 908;

// What a thread may call while a stream is captured, as the runtime numbers
// the modes: with kGlobal nothing that another thread's capture forbids.
enum class CudaCaptureMode { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

// Of one device, as far as Castor cares.
struct CudaDeviceProperties {
  std::string name;
  std::string pci_bus_id;  // "0000:1b:00.0"
  int64_t total_bytes = 0;
  int numa_node = -1;  // of the host, nearest; -1: not told
};

// What SumParts adds: the parts of all ranks, of `count` elements each.
struct CudaParts {
  // Of all but one, at multiples of `stride` elements, in their order.
  const void* others = nullptr;
  int64_t stride = 0;
  const void* own = nullptr;  // the one that lies elsewhere
  int own_index = 0;          // among all
  int parts = 1;
};

class CudaCalls {
 public:
  virtual ~CudaCalls() = default;

  // "cudaErrorMemoryAllocation: out of memory".
  virtual std::string ErrorText(int error) const = 0;

  // Neither makes a context.
  virtual int GetDeviceCount(int* count) = 0;
  virtual int GetProperties(int device, CudaDeviceProperties* properties) = 0;

  // The context that the runtime uses for `device`, which is made where there
  // is none. It lives until as many releases as it was retained.
  virtual int RetainContext(int device, CudaContext* context) = 0;
  virtual int ReleaseContext(int device) = 0;
  // The calling thread's current context; null: none. A push is undone by a
  // pop, also where there was none before.
  virtual int GetContext(CudaContext* context) = 0;
  virtual int PushContext(CudaContext context) = 0;
  virtual int PopContext() = 0;
  // Sets the calling thread's mode, and `*mode` to what it was.
  virtual int ExchangeCaptureMode(CudaCaptureMode* mode) = 0;

  // Makes every kernel below ready for the current context's device. The
  // runtime would do so at a kernel's first launch, and wait then for work that
  // may be waiting for the launching thread.
  virtual int LoadKernels() = 0;
  virtual int MemGetInfo(int64_t* free_bytes, int64_t* total_bytes) = 0;

  virtual int Malloc(int64_t size, void** data) = 0;
  virtual int Free(void* data) = 0;
  // Pins and maps host memory for every device.
  virtual int HostRegister(void* data, int64_t size) = 0;
  virtual int HostUnregister(void* data) = 0;

  // Never orders itself with the default stream (cudaStreamNonBlocking).
  virtual int StreamCreate(CudaStream* stream) = 0;
  virtual int StreamDestroy(CudaStream stream) = 0;
  virtual int StreamSynchronize(CudaStream stream) = 0;
  // Whether it is captured into a graph: what is queued then runs later, as
  // often as the graph does.
  virtual int StreamIsCapturing(CudaStream stream, bool* capturing) = 0;
  virtual int StreamWaitEvent(CudaStream stream, CudaEvent event) = 0;

  // A thread that synchronizes with the event sleeps. An event without times
  // is cheaper.
  enum class EventTimes { kNone, kTaken };
  virtual int EventCreate(EventTimes times, CudaEvent* event) = 0;
  virtual int EventDestroy(CudaEvent event) = 0;
  virtual int EventRecord(CudaEvent event, CudaStream stream) = 0;
  virtual int EventQuery(CudaEvent event) = 0;  // kCudaNotReady while it runs
  virtual int EventSynchronize(CudaEvent event) = 0;
  // From when the device passed `begin` until it passed `end`; negative where
  // it passed `end` first. Both have times, and are done.
  virtual int EventElapsed(CudaEvent begin, CudaEvent end,
                           float* milliseconds) = 0;

  // Direction found from the addresses.
  virtual int MemcpyAsync(void* to, const void* from, int64_t size,
                          CudaStream stream) = 0;
  virtual int MemsetAsync(void* to, int value, int64_t size,
                          CudaStream stream) = 0;

  // Kernels, as offload/device.h describes the operations of these names; all
  // pointers are to device memory, counts are positive.
  virtual int Convert(CudaStream stream, const void* from, DType from_dtype,
                      void* to, DType to_dtype, int64_t count) = 0;
  virtual int AddInto(CudaStream stream, void* total, const void* part,
                      DType dtype, int64_t count) = 0;
  virtual int Scale(CudaStream stream, void* data, DType dtype, int64_t count,
                    float factor) = 0;
  // to[i] = round((p0[i] + p1[i]) + ...), in fp32 in the parts' order, to the
  // bits of SumInOrder of offload/kernels/reduce.h. `to` may be the own part.
  virtual int SumParts(CudaStream stream, const CudaParts& parts, DType dtype,
                       int64_t count, void* to) = 0;
  virtual int AddSquares(CudaStream stream, const void* grad, DType dtype,
                         int64_t count, uint64_t* words) = 0;
  virtual int Optimize(CudaStream stream, const OptimizerBuffers& buffers,
                       int64_t count, const OptimizerScalars& scalars,
                       float grad_factor) = 0;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_CUDA_CALLS_H_
