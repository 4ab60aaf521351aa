// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The only file that speaks to the CUDA runtime, kernels apart.

#include "offload/cuda/cuda_runtime_calls.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <array>
#include <cctype>
#include <fstream>
#include <string>

#include "offload/cuda/kernels/kernels.h"

namespace castor {
namespace {

static_assert(kCudaOk == cudaSuccess);
static_assert(kCudaInvalidValue == cudaErrorInvalidValue);
static_assert(kCudaOutOfMemory == cudaErrorMemoryAllocation);
static_assert(kCudaInsufficientDriver == cudaErrorInsufficientDriver);
static_assert(kCudaNoDevice == cudaErrorNoDevice);
static_assert(kCudaInvalidContext == cudaErrorDeviceUninitialized);
static_assert(kCudaInvalidHandle == cudaErrorInvalidResourceHandle);
static_assert(kCudaNotReady == cudaErrorNotReady);
static_assert(kCudaNotSupported == cudaErrorNotSupported);
static_assert(kCudaCaptureUnsupported == cudaErrorStreamCaptureUnsupported);
static_assert(kCudaCapturedEvent == cudaErrorCapturedEvent);
static_assert(kCudaCaptureWrongThread == cudaErrorStreamCaptureWrongThread);
static_assert(static_cast<int>(CudaCaptureMode::kGlobal) ==
              cudaStreamCaptureModeGlobal);
static_assert(static_cast<int>(CudaCaptureMode::kThreadLocal) ==
              cudaStreamCaptureModeThreadLocal);
static_assert(static_cast<int>(CudaCaptureMode::kRelaxed) ==
              cudaStreamCaptureModeRelaxed);

// Every call passes here: the runtime keeps an error as its last one, and a
// trainer that asks for its own would be given ours.
int Checked(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

cudaStream_t Native(CudaStream stream) {
  return static_cast<cudaStream_t>(stream);
}
cudaEvent_t NativeEvent(CudaEvent event) {
  return static_cast<cudaEvent_t>(event);
}

// Of sysfs, where the driver does not tell the NUMA node itself. It writes the
// bus in lower case.
int NumaNodeOfBus(std::string bus_id) {
  for (char& c : bus_id) c = static_cast<char>(std::tolower(c));
  std::ifstream file("/sys/bus/pci/devices/" + bus_id + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

// A call of the driver that is loaded, so that nothing is linked against it.
// kCudaNotSupported where it has no such call.
template <typename... Parameters>
class DriverCall {
 public:
  explicit DriverCall(const char* name) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        name, &found, 12000, cudaEnableDefault, &result);
    if (Checked(error) == kCudaOk && result == cudaDriverEntryPointSuccess) {
      call_ = reinterpret_cast<CUresult (*)(Parameters...)>(found);
    }
  }
  // Codes of driver and runtime are alike.
  int operator()(Parameters... parameters) const {
    return call_ == nullptr ? kCudaNotSupported : call_(parameters...);
  }

 private:
  CUresult (*call_)(Parameters...) = nullptr;
};

struct DriverCalls {
  DriverCall<CUcontext*, CUdevice> retain{"cuDevicePrimaryCtxRetain"};
  DriverCall<CUdevice> release{"cuDevicePrimaryCtxRelease"};
  DriverCall<CUcontext*> get_current{"cuCtxGetCurrent"};
  DriverCall<CUcontext> push{"cuCtxPushCurrent"};
  DriverCall<CUcontext*> pop{"cuCtxPopCurrent"};
};

const DriverCalls& Driver() {
  static const DriverCalls calls;
  return calls;
}

class RuntimeCalls final : public CudaCalls {
 public:
  std::string ErrorText(int error) const override {
    const auto code = static_cast<cudaError_t>(error);
    return std::string(cudaGetErrorName(code)) + " (" + std::to_string(error) +
           "): " + cudaGetErrorString(code);
  }

  int GetDeviceCount(int* count) override {
    return Checked(cudaGetDeviceCount(count));
  }
  int GetProperties(int device, CudaDeviceProperties* properties) override {
    cudaDeviceProp native{};
    int error = Checked(cudaGetDeviceProperties(&native, device));
    if (error != kCudaOk) return error;
    std::array<char, 32> bus{};
    error = Checked(cudaDeviceGetPCIBusId(
        bus.data(), static_cast<int>(bus.size()), device));
    if (error != kCudaOk) return error;
    properties->name = native.name;
    properties->pci_bus_id = bus.data();
    properties->total_bytes = static_cast<int64_t>(native.totalGlobalMem);
    int node = -1;
    if (Checked(cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, device)) !=
            kCudaOk ||
        node < 0) {
      node = NumaNodeOfBus(properties->pci_bus_id);
    }
    properties->numa_node = node;
    return kCudaOk;
  }

  // A device's number is the same for the driver and the runtime.
  int RetainContext(int device, CudaContext* context) override {
    CUcontext native = nullptr;
    const int error = Driver().retain(&native, device);
    *context = native;
    return error;
  }
  int ReleaseContext(int device) override { return Driver().release(device); }
  int GetContext(CudaContext* context) override {
    CUcontext native = nullptr;
    const int error = Driver().get_current(&native);
    *context = native;
    return error;
  }
  int PushContext(CudaContext context) override {
    return Driver().push(static_cast<CUcontext>(context));
  }
  int PopContext() override {
    CUcontext native = nullptr;
    return Driver().pop(&native);
  }
  int ExchangeCaptureMode(CudaCaptureMode* mode) override {
    auto native = static_cast<cudaStreamCaptureMode>(*mode);
    const int error = Checked(cudaThreadExchangeStreamCaptureMode(&native));
    *mode = static_cast<CudaCaptureMode>(native);
    return error;
  }

  int LoadKernels() override {
    return Checked(static_cast<cudaError_t>(castor::LoadKernels()));
  }

  int MemGetInfo(int64_t* free_bytes, int64_t* total_bytes) override {
    size_t free = 0;
    size_t total = 0;
    const int error = Checked(cudaMemGetInfo(&free, &total));
    *free_bytes = static_cast<int64_t>(free);
    *total_bytes = static_cast<int64_t>(total);
    return error;
  }

  int Malloc(int64_t size, void** data) override {
    return Checked(cudaMalloc(data, static_cast<size_t>(size)));
  }
  int Free(void* data) override { return Checked(cudaFree(data)); }
  int HostRegister(void* data, int64_t size) override {
    return Checked(
        cudaHostRegister(data, static_cast<size_t>(size),
                         cudaHostRegisterPortable | cudaHostRegisterMapped));
  }
  int HostUnregister(void* data) override {
    return Checked(cudaHostUnregister(data));
  }

  int StreamCreate(CudaStream* stream) override {
    cudaStream_t native = nullptr;
    const int error =
        Checked(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking));
    *stream = native;
    return error;
  }
  int StreamDestroy(CudaStream stream) override {
    return Checked(cudaStreamDestroy(Native(stream)));
  }
  int StreamSynchronize(CudaStream stream) override {
    return Checked(cudaStreamSynchronize(Native(stream)));
  }
  int StreamIsCapturing(CudaStream stream, bool* capturing) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const int error = Checked(cudaStreamIsCapturing(Native(stream), &status));
    *capturing = status != cudaStreamCaptureStatusNone;
    return error;
  }
  int StreamWaitEvent(CudaStream stream, CudaEvent event) override {
    return Checked(cudaStreamWaitEvent(Native(stream), NativeEvent(event), 0));
  }

  int EventCreate(EventTimes times, CudaEvent* event) override {
    cudaEvent_t native = nullptr;
    unsigned flags = cudaEventBlockingSync;
    if (times == EventTimes::kNone) flags |= cudaEventDisableTiming;
    const int error = Checked(cudaEventCreateWithFlags(&native, flags));
    *event = native;
    return error;
  }
  int EventDestroy(CudaEvent event) override {
    return Checked(cudaEventDestroy(NativeEvent(event)));
  }
  int EventRecord(CudaEvent event, CudaStream stream) override {
    return Checked(cudaEventRecord(NativeEvent(event), Native(stream)));
  }
  int EventQuery(CudaEvent event) override {
    return Checked(cudaEventQuery(NativeEvent(event)));
  }
  int EventSynchronize(CudaEvent event) override {
    return Checked(cudaEventSynchronize(NativeEvent(event)));
  }
  int EventElapsed(CudaEvent begin, CudaEvent end,
                   float* milliseconds) override {
    return Checked(cudaEventElapsedTime(milliseconds, NativeEvent(begin),
                                        NativeEvent(end)));
  }

  int MemcpyAsync(void* to, const void* from, int64_t size,
                  CudaStream stream) override {
    return Checked(cudaMemcpyAsync(to, from, static_cast<size_t>(size),
                                   cudaMemcpyDefault, Native(stream)));
  }
  int MemsetAsync(void* to, int value, int64_t size,
                  CudaStream stream) override {
    return Checked(
        cudaMemsetAsync(to, value, static_cast<size_t>(size), Native(stream)));
  }

  int Convert(CudaStream stream, const void* from, DType from_dtype, void* to,
              DType to_dtype, int64_t count) override {
    return CheckedLaunch(
        LaunchConvert(stream, from, from_dtype, to, to_dtype, count));
  }
  int AddInto(CudaStream stream, void* total, const void* part, DType dtype,
              int64_t count) override {
    return CheckedLaunch(LaunchAddInto(stream, total, part, dtype, count));
  }
  int Scale(CudaStream stream, void* data, DType dtype, int64_t count,
            float factor) override {
    return CheckedLaunch(LaunchScale(stream, data, dtype, count, factor));
  }
  int SumParts(CudaStream stream, const CudaParts& parts, DType dtype,
               int64_t count, void* to) override {
    return CheckedLaunch(LaunchSumParts(stream, parts, dtype, count, to));
  }
  int AddSquares(CudaStream stream, const void* grad, DType dtype,
                 int64_t count, uint64_t* words) override {
    return CheckedLaunch(LaunchAddSquares(stream, grad, dtype, count, words));
  }
  int Optimize(CudaStream stream, const OptimizerBuffers& buffers,
               int64_t count, const OptimizerScalars& scalars,
               float grad_factor) override {
    return CheckedLaunch(
        LaunchOptimize(stream, buffers, count, scalars, grad_factor));
  }

 private:
  static int CheckedLaunch(int error) {
    return Checked(static_cast<cudaError_t>(error));
  }
};

}  // namespace

CudaCalls* CudaRuntimeCalls() {
  // Never destroyed: events may outlive main's locals.
  static RuntimeCalls* const calls = new RuntimeCalls();
  return calls;
}

}  // namespace castor
