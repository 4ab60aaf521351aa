// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FAKES_FAKE_CUDA_H_
#define CASTOR_TESTS_SUPPORT_FAKES_FAKE_CUDA_H_

// A CUDA runtime of host memory behind the call table: streams run their work
// in order, beside each other, on two threads of the fake or when the test
// cranks them; kernels are Castor's on the host. Calls fail on cue, at once or,
// as a kernel's fault does, when the stream gets there: such an error sticks to
// the fake, and nothing runs any more. What was made and not destroyed is
// counted. Thread-safe.
//
// Where it is as strict as the CUDA documentation (C++ Programming Guide and
// Runtime API, 12.x):
//
//   device memory     Programming Guide, "Device Memory": the host has its
//       addresses, and no access. See FakeDeviceMemory.
//   hardware queues   Programming Guide, "CUDA Environment Variables",
//       CUDA_DEVICE_MAX_CONNECTIONS: streams share a device's hardware queues.
//       Streams are dealt to `hardware_queues` in turn. An operation begins
//       only when what was queued to its queue before it has begun.
//   pageable memory   Runtime API, "API synchronization behavior", Memcpy: an
//       asynchronous copy between the device and pageable memory may be
//       synchronous. Here the call returns when the stream has made the copy.
//   lazy loading      Programming Guide, "Lazy Loading", "Concurrent
//       execution": loading a kernel may require synchronization. Here the
//       launch of a kernel that was not loaded waits for all streams of the
//       device, and holds the context's lock meanwhile: calls of other threads
//       in that context wait for it (meta-pytorch/torchcomms #2334).
//   launch queue      Programming Guide, "CUDA Environment Variables",
//       CUDA_SCALE_LAUNCH_QUEUES: queues for launching work have a size. Here a
//       hardware queue takes `launch_queue` operations. A call that queues one
//       more waits for room, and holds the context's lock: what happens then
//       NVIDIA does not say, and microsoft/mscclpp #516 shows.
//   contexts          Programming Guide, "Initialization": a thread that calls
//       the runtime with no context gets one on device 0.
//   capture           Programming Guide, "Prohibited and Unhandled Operations"
//       of stream capture: an unsafe call ends the capture.
//   timing            Runtime API, cudaEventElapsedTime: refused of an event
//       that was made without times, or is not done.
//
// All fakes share the contexts of a thread; a new fake takes away those of the
// thread that makes it.
//
//   FakeCuda cuda({.threads = false});
//   cuda.FailWork("MemcpyAsync", 2, 700);  // the second from now on
//   ...
//   cuda.RunAll();

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "chunk/base/dtype.h"
#include "offload/cuda/cuda_calls.h"
#include "tests/support/fakes/fake_device_memory.h"

namespace castor {

struct FakeCudaOptions {
  bool threads = true;  // else the test calls RunOne and RunAll
  int devices = 1;
  int64_t total_bytes = int64_t{256} << 20;
  int numa_node = -1;
  int hardware_queues = 0;  // of each device; 0: one for every stream
  size_t launch_queue = 1024;
  // Where not: what is neither registered nor allocated counts as the
  // trainer's device memory.
  bool knows_pageable = true;
};

class FakeCuda final : public CudaCalls {
 public:
  explicit FakeCuda(FakeCudaOptions options = {});
  // REQUIRES: nothing is queued, unless an error stuck.
  ~FakeCuda() override;

  // The `nth` call of this name, counted from 1 from now on, returns `error`
  // and does nothing.
  void FailCall(std::string_view call, int nth, int error);
  // It succeeds, but what it queued fails with `error`, which sticks.
  void FailWork(std::string_view call, int nth, int error);
  // Calls so far, failed ones included.
  int64_t calls(std::string_view call) const;

  // What exists.
  struct Live {
    int64_t streams = 0;
    int64_t events = 0;
    int64_t allocations = 0;
    int64_t registrations = 0;
    int64_t contexts = 0;  // retained
    friend bool operator==(const Live&, const Live&) = default;
  };
  Live live() const;
  // Of host memory registered now.
  int64_t registered_bytes() const;
  // Whether [data, data + size) is.
  bool IsRegistered(const void* data, int64_t size) const;

  // As the trainer's cudaSetDevice: for the calling thread.
  void UseDevice(int device);
  // Of the calling thread's context; -1: it has none.
  static int CurrentDevice();
  // The device's context, retained.
  CudaContext Retained(int device);
  // Whether the device ever had a context.
  bool has_context(int device) const;

  // Captures what is queued on the stream from now on, for the calling thread.
  void BeginCapture(CudaStream stream,
                    CudaCaptureMode mode = CudaCaptureMode::kGlobal);
  // How it went: ok, or the error that ended it.
  int EndCapture(CudaStream stream);

  // Queues work of the trainer's own, or of another library's. `ready`, if
  // given, is asked again and again once the stream gets there, and the stream
  // stands still until it says so; it calls nothing of the fake.
  void Launch(CudaStream stream, std::function<void()> work,
              std::function<bool()> ready = nullptr);
  // The same with a kernel that was not launched before, and is loaded now.
  void LaunchFirst(CudaStream stream, std::function<void()> work);

  // Where work on a stream finds what the host has at `data`.
  template <typename T>
  T* Reach(T* data) const {
    return memory_.Reach(data);
  }

  // Without threads: runs the next operation of `stream`, or of the first
  // stream that can run one. False where none can.
  bool RunOne(CudaStream stream);
  bool RunOne();
  // Until none can. Returns how many ran.
  int RunAll();

  std::string ErrorText(int error) const override;
  int GetDeviceCount(int* count) override;
  int GetProperties(int device, CudaDeviceProperties* properties) override;
  int RetainContext(int device, CudaContext* context) override;
  int ReleaseContext(int device) override;
  int GetContext(CudaContext* context) override;
  int PushContext(CudaContext context) override;
  int PopContext() override;
  int ExchangeCaptureMode(CudaCaptureMode* mode) override;
  int LoadKernels() override;
  int MemGetInfo(int64_t* free_bytes, int64_t* total_bytes) override;
  int Malloc(int64_t size, void** data) override;
  int Free(void* data) override;
  int HostRegister(void* data, int64_t size) override;
  int HostUnregister(void* data) override;
  int StreamCreate(CudaStream* stream) override;
  int StreamDestroy(CudaStream stream) override;
  int StreamSynchronize(CudaStream stream) override;
  int StreamIsCapturing(CudaStream stream, bool* capturing) override;
  int StreamWaitEvent(CudaStream stream, CudaEvent event) override;
  int EventCreate(EventTimes times, CudaEvent* event) override;
  int EventDestroy(CudaEvent event) override;
  int EventRecord(CudaEvent event, CudaStream stream) override;
  int EventQuery(CudaEvent event) override;
  int EventSynchronize(CudaEvent event) override;
  int EventElapsed(CudaEvent begin, CudaEvent end,
                   float* milliseconds) override;
  int MemcpyAsync(void* to, const void* from, int64_t size,
                  CudaStream stream) override;
  int MemsetAsync(void* to, int value, int64_t size,
                  CudaStream stream) override;
  int Convert(CudaStream stream, const void* from, DType from_dtype, void* to,
              DType to_dtype, int64_t count) override;
  int AddInto(CudaStream stream, void* total, const void* part, DType dtype,
              int64_t count) override;
  int Scale(CudaStream stream, void* data, DType dtype, int64_t count,
            float factor) override;
  int SumParts(CudaStream stream, const CudaParts& parts, DType dtype,
               int64_t count, void* to) override;
  int AddSquares(CudaStream stream, const void* grad, DType dtype,
                 int64_t count, uint64_t* words) override;
  int Optimize(CudaStream stream, const OptimizerBuffers& buffers,
               int64_t count, const OptimizerScalars& scalars,
               float grad_factor) override;

 private:
  struct Operation {
    std::function<bool()> ready = nullptr;  // null: always
    std::function<void()> run = nullptr;    // null: nothing
    int fails_with = kCudaOk;
  };
  struct Capture {
    CudaCaptureMode mode;
    std::thread::id thread;
    int error = kCudaOk;  // that ended it
  };
  struct Stream;
  // What was queued and has not begun, by stream.
  using HardwareQueue = std::deque<Stream*>;
  struct Stream {
    int device = 0;
    std::shared_ptr<HardwareQueue> queue;
    std::deque<Operation> operations;
    bool running = false;  // its front operation is being run
    int64_t queued = 0;    // ever
    int64_t completed = 0;
    std::optional<Capture> capture;
  };
  // A point in a stream; the one of a fresh event is passed already.
  struct Event {
    std::shared_ptr<Stream> stream;
    int64_t position = 0;
    bool captured = false;
    bool takes_time = false;
    std::shared_ptr<int64_t> at_ns = nullptr;  // when the stream got there
    bool done() const {
      return stream == nullptr || stream->completed >= position;
    }
  };
  struct Injection {
    int64_t at;  // the number of the call
    int error;
    bool work;
  };

  // The lock of a call, once no other thread holds its context's.
  std::unique_lock<std::mutex> LockContext();
  // Counts the call. An error to return, or kCudaOk and, in `work_error`, what
  // the work it queues is to fail with.
  int EnterDriver(std::string_view call, int* work_error = nullptr);
  // The same for calls that need a context, which is made where none is.
  int Enter(std::string_view call, int* work_error = nullptr);
  // The same for calls that a capture of another thread forbids.
  int EnterUnsafe(std::string_view call);
  // One call that queues an operation on a stream. Takes the lock.
  int Queue(std::string_view call, CudaStream stream, Operation operation);
  int QueueKernel(std::string_view call, CudaStream stream,
                  std::function<void()> run);
  // All with mutex_ held.
  std::shared_ptr<Stream> MakeStream(int device);
  // In host memory that is not registered.
  bool IsPageable(const void* data) const;
  bool CanRun(const Stream& stream) const;
  std::shared_ptr<Stream> Find(CudaStream stream);
  std::shared_ptr<Stream> NextReady();
  void Run(const std::shared_ptr<Stream>& stream,
           std::unique_lock<std::mutex>& lock);
  // Until `done`, running operations itself where there are no threads.
  int WaitUntil(const std::function<bool()>& done,
                std::unique_lock<std::mutex>& lock);
  // The same with the context's lock.
  int WaitInContext(const std::function<bool()>& done,
                    std::unique_lock<std::mutex>& lock);
  int Load(std::unique_lock<std::mutex>& lock);
  void Work();

  const FakeCudaOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::map<CudaStream, std::shared_ptr<Stream>> streams_;
  std::map<CudaEvent, std::shared_ptr<Event>> events_;
  FakeDeviceMemory memory_;
  std::map<std::byte*, int64_t> registrations_;
  std::map<std::string, int64_t, std::less<>> calls_;
  std::multimap<std::string, Injection, std::less<>> injections_;
  // By device; streams are dealt to them in turn.
  std::map<int, std::vector<std::shared_ptr<HardwareQueue>>> queues_;
  std::map<int, int> streams_made_;
  uintptr_t next_handle_ = 0x1000;
  int stuck_ = kCudaOk;
  std::set<int> contexts_;                     // devices that have had one
  std::map<int, int64_t> retained_;            // how often
  bool loaded_ = false;                        // Castor's kernels
  std::map<int, std::thread::id> in_context_;  // who holds a device's lock
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FAKES_FAKE_CUDA_H_
