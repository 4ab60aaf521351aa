// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/fake_cuda.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include "chunk/base/check.h"

namespace castor {
namespace {

// What registered memory's address on the device differs by.
constexpr uintptr_t kDeviceBit = uintptr_t{1} << 62;
// How often a stream that waits for a word of memory looks at it.
constexpr std::chrono::microseconds kLook(20);

// As on hardware, every thread has its own; one for all fakes serves.
thread_local std::vector<CudaContext> contexts;
thread_local CudaCaptureMode capture_mode = CudaCaptureMode::kGlobal;

constexpr uintptr_t kContexts = 0xC0000;

CudaContext ContextOf(int device) {
  return reinterpret_cast<CudaContext>(kContexts +
                                       static_cast<uintptr_t>(device));
}

}  // namespace

FakeCuda::FakeCuda(FakeCudaOptions options) : options_(options) {
  contexts.clear();
  // The default stream.
  streams_[nullptr] = std::make_shared<Stream>();
  if (!options_.threads) return;
  for (int i = 0; i < 2; ++i) threads_.emplace_back([this] { Work(); });
}

FakeCuda::~FakeCuda() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  for (const auto& [handle, stream] : streams_) {
    CASTOR_CHECK(stuck_ != kCudaOk || stream->operations.empty());
  }
}

void FakeCuda::FailCall(std::string_view call, int nth, int error) {
  std::lock_guard lock(mutex_);
  const std::string name(call);
  injections_.insert({name, {calls_[name] + nth, error, false}});
}

void FakeCuda::FailWork(std::string_view call, int nth, int error) {
  std::lock_guard lock(mutex_);
  const std::string name(call);
  injections_.insert({name, {calls_[name] + nth, error, true}});
}

int64_t FakeCuda::calls(std::string_view call) const {
  std::lock_guard lock(mutex_);
  const auto found = calls_.find(call);
  return found == calls_.end() ? 0 : found->second;
}

FakeCuda::Live FakeCuda::live() const {
  std::lock_guard lock(mutex_);
  return {.streams = std::ssize(streams_) - 1,
          .events = std::ssize(events_),
          .allocations = std::ssize(allocations_),
          .registrations = std::ssize(registrations_),
          .contexts = std::ssize(retained_)};
}

int64_t FakeCuda::registered_bytes() const {
  std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [data, size] : registrations_) bytes += size;
  return bytes;
}

bool FakeCuda::IsRegistered(const void* data, int64_t size) const {
  std::lock_guard lock(mutex_);
  const auto* first = static_cast<const std::byte*>(data);
  for (const auto& [start, length] : registrations_) {
    if (first >= start && first + size <= start + length) return true;
  }
  return false;
}

int FakeCuda::Enter(std::string_view call, int* work_error) {
  if (contexts.empty()) {
    contexts.push_back(ContextOf(0));
    contexts_.insert(0);
  }
  return EnterDriver(call, work_error);
}

int FakeCuda::EnterUnsafe(std::string_view call) {
  if (const int error = Enter(call); error != kCudaOk) return error;
  if (capture_mode == CudaCaptureMode::kRelaxed) return kCudaOk;
  const std::thread::id self = std::this_thread::get_id();
  int error = kCudaOk;
  for (const auto& [handle, stream] : streams_) {
    std::optional<Capture>& capture = stream->capture;
    if (!capture || capture->mode == CudaCaptureMode::kRelaxed) continue;
    const bool forbids =
        capture->thread == self || (capture->mode == CudaCaptureMode::kGlobal &&
                                    capture_mode == CudaCaptureMode::kGlobal);
    if (forbids) error = capture->error = kCudaCaptureUnsupported;
  }
  return error;
}

int FakeCuda::EnterDriver(std::string_view call, int* work_error) {
  const std::string name(call);
  const int64_t number = ++calls_[name];
  if (stuck_ != kCudaOk) return stuck_;
  const auto [first, last] = injections_.equal_range(name);
  for (auto it = first; it != last; ++it) {
    if (it->second.at != number) continue;
    if (!it->second.work) return it->second.error;
    CASTOR_CHECK(work_error != nullptr);  // the call queues no work
    *work_error = it->second.error;
  }
  return kCudaOk;
}

std::shared_ptr<FakeCuda::Stream> FakeCuda::Find(CudaStream stream) {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second;
}

int FakeCuda::Queue(std::string_view call, CudaStream stream,
                    Operation operation) {
  std::lock_guard lock(mutex_);
  if (const int error = Enter(call, &operation.fails_with); error != kCudaOk) {
    return error;
  }
  const std::shared_ptr<Stream> found = Find(stream);
  if (found == nullptr) return kCudaInvalidValue;
  if (found->capture) return kCudaOk;  // it is the graph's
  found->operations.push_back(std::move(operation));
  ++found->queued;
  changed_.notify_all();
  return kCudaOk;
}

void FakeCuda::Launch(CudaStream stream, std::function<void()> work,
                      std::function<bool()> ready) {
  CASTOR_CHECK_EQ(Queue("Launch", stream,
                        {.ready = std::move(ready), .run = std::move(work)}),
                  kCudaOk);
}

std::shared_ptr<FakeCuda::Stream> FakeCuda::NextReady() {
  for (const auto& [handle, stream] : streams_) {
    if (stream->running || stream->operations.empty()) continue;
    const Operation& next = stream->operations.front();
    if (next.ready == nullptr || next.ready()) return stream;
  }
  return nullptr;
}

void FakeCuda::Run(const std::shared_ptr<Stream>& stream,
                   std::unique_lock<std::mutex>& lock) {
  Operation operation = std::move(stream->operations.front());
  stream->operations.pop_front();
  stream->running = true;
  if (operation.fails_with != kCudaOk) {
    if (stuck_ == kCudaOk) stuck_ = operation.fails_with;
  } else if (operation.run != nullptr) {
    lock.unlock();
    operation.run();
    lock.lock();
  }
  stream->running = false;
  ++stream->completed;
  changed_.notify_all();
}

bool FakeCuda::RunOne(CudaStream stream) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Stream> found = Find(stream);
  CASTOR_CHECK(found != nullptr && !options_.threads);
  if (stuck_ != kCudaOk || found->operations.empty()) return false;
  const Operation& next = found->operations.front();
  if (next.ready != nullptr && !next.ready()) return false;
  Run(found, lock);
  return true;
}

bool FakeCuda::RunOne() {
  std::unique_lock lock(mutex_);
  CASTOR_CHECK(!options_.threads);
  const std::shared_ptr<Stream> stream =
      stuck_ == kCudaOk ? NextReady() : nullptr;
  if (stream == nullptr) return false;
  Run(stream, lock);
  return true;
}

int FakeCuda::RunAll() {
  int ran = 0;
  while (RunOne()) ++ran;
  return ran;
}

int FakeCuda::WaitUntil(const std::function<bool()>& done,
                        std::unique_lock<std::mutex>& lock) {
  while (stuck_ == kCudaOk && !done()) {
    if (options_.threads) {
      changed_.wait(lock);
      continue;
    }
    const std::shared_ptr<Stream> stream = NextReady();
    CASTOR_CHECK(stream != nullptr);  // else it would wait for ever
    Run(stream, lock);
  }
  return stuck_;
}

void FakeCuda::Work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const std::shared_ptr<Stream> stream =
        stuck_ == kCudaOk ? NextReady() : nullptr;
    if (stream != nullptr) {
      Run(stream, lock);
      continue;
    }
    const bool waits =
        std::any_of(streams_.begin(), streams_.end(), [](const auto& each) {
          return !each.second->running && !each.second->operations.empty();
        });
    if (waits && stuck_ == kCudaOk) {
      changed_.wait_for(lock, kLook);
    } else {
      changed_.wait(lock);
    }
  }
}

std::string FakeCuda::ErrorText(int error) const {
  return "cudaError" + std::to_string(error) + ": injected";
}

void FakeCuda::UseDevice(int device) {
  CASTOR_CHECK(device >= 0 && device < options_.devices);
  std::lock_guard lock(mutex_);
  contexts.assign(1, ContextOf(device));
  contexts_.insert(device);
}

int FakeCuda::CurrentDevice() {
  if (contexts.empty()) return -1;
  return static_cast<int>(reinterpret_cast<uintptr_t>(contexts.back()) -
                          kContexts);
}

CudaContext FakeCuda::Retained(int device) {
  CudaContext context = nullptr;
  CASTOR_CHECK_EQ(RetainContext(device, &context), kCudaOk);
  return context;
}

bool FakeCuda::has_context(int device) const {
  std::lock_guard lock(mutex_);
  return contexts_.contains(device);
}

void FakeCuda::BeginCapture(CudaStream stream, CudaCaptureMode mode) {
  std::lock_guard lock(mutex_);
  Find(stream)->capture = Capture{mode, std::this_thread::get_id()};
}

int FakeCuda::EndCapture(CudaStream stream) {
  std::lock_guard lock(mutex_);
  const std::optional<Capture> ended =
      std::exchange(Find(stream)->capture, std::nullopt);
  CASTOR_CHECK(ended.has_value());
  return ended->error;
}

int FakeCuda::GetDeviceCount(int* count) {
  std::lock_guard lock(mutex_);
  *count = options_.devices;
  return EnterDriver("GetDeviceCount");
}

int FakeCuda::RetainContext(int device, CudaContext* context) {
  std::lock_guard lock(mutex_);
  if (const int error = EnterDriver("RetainContext"); error != kCudaOk) {
    return error;
  }
  *context = ContextOf(device);
  contexts_.insert(device);
  ++retained_[device];
  return kCudaOk;
}

int FakeCuda::ReleaseContext(int device) {
  std::lock_guard lock(mutex_);
  const int error = EnterDriver("ReleaseContext");
  const auto found = retained_.find(device);
  if (found == retained_.end()) return kCudaInvalidContext;
  if (--found->second == 0) retained_.erase(found);
  return error;
}

int FakeCuda::GetContext(CudaContext* context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return kCudaOk;
}

int FakeCuda::PushContext(CudaContext context) {
  contexts.push_back(context);
  return kCudaOk;
}

int FakeCuda::PopContext() {
  if (contexts.empty()) return kCudaInvalidContext;
  contexts.pop_back();
  return kCudaOk;
}

int FakeCuda::ExchangeCaptureMode(CudaCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return kCudaOk;
}

int FakeCuda::LoadKernels() {
  std::lock_guard lock(mutex_);
  const int error = Enter("LoadKernels");
  loaded_ = error == kCudaOk;
  return error;
}

int FakeCuda::GetProperties(int device, CudaDeviceProperties* properties) {
  std::lock_guard lock(mutex_);
  *properties = {.name = "Fake GPU " + std::to_string(device),
                 .pci_bus_id = "0000:00:00.0",
                 .total_bytes = options_.total_bytes,
                 .numa_node = options_.numa_node};
  return EnterDriver("GetProperties");
}

int FakeCuda::MemGetInfo(int64_t* free_bytes, int64_t* total_bytes) {
  std::lock_guard lock(mutex_);
  *free_bytes = options_.total_bytes - allocated_;
  *total_bytes = options_.total_bytes;
  return Enter("MemGetInfo");
}

int FakeCuda::Malloc(int64_t size, void** data) {
  std::lock_guard lock(mutex_);
  if (const int error = EnterUnsafe("Malloc"); error != kCudaOk) return error;
  if (allocated_ + size > options_.total_bytes) return kCudaOutOfMemory;
  // Dirty, as the device's is.
  std::vector<std::byte> memory(static_cast<size_t>(size) + 255,
                                std::byte{0xA5});
  const uintptr_t start = reinterpret_cast<uintptr_t>(memory.data());
  *data = reinterpret_cast<void*>((start + 255) / 256 * 256);
  allocations_[*data] = std::move(memory);
  allocated_ += size;
  return kCudaOk;
}

int FakeCuda::Free(void* data) {
  std::lock_guard lock(mutex_);
  const int error = EnterUnsafe("Free");
  const auto found = allocations_.find(data);
  if (found == allocations_.end()) return kCudaInvalidValue;
  allocated_ -= std::ssize(found->second) - 255;
  allocations_.erase(found);
  return error;
}

int FakeCuda::HostRegister(void* data, int64_t size) {
  std::lock_guard lock(mutex_);
  if (const int error = EnterUnsafe("HostRegister"); error != kCudaOk) {
    return error;
  }
  const bool fresh =
      registrations_.insert({static_cast<std::byte*>(data), size}).second;
  return fresh ? kCudaOk : kCudaInvalidValue;
}

int FakeCuda::HostUnregister(void* data) {
  std::lock_guard lock(mutex_);
  const int error = EnterUnsafe("HostUnregister");
  if (registrations_.erase(static_cast<std::byte*>(data)) == 0) {
    return kCudaInvalidValue;
  }
  return error;
}

int FakeCuda::HostGetDevicePointer(void* host, void** device) {
  if (!IsRegistered(host, 1)) return kCudaInvalidValue;
  std::lock_guard lock(mutex_);
  *device =
      reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(host) | kDeviceBit);
  return Enter("HostGetDevicePointer");
}

int FakeCuda::StreamCreate(CudaStream* stream) {
  std::lock_guard lock(mutex_);
  if (const int error = Enter("StreamCreate"); error != kCudaOk) return error;
  *stream = reinterpret_cast<CudaStream>(next_handle_++);
  streams_[*stream] = std::make_shared<Stream>();
  return kCudaOk;
}

int FakeCuda::StreamDestroy(CudaStream stream) {
  std::lock_guard lock(mutex_);
  const int error = Enter("StreamDestroy");
  CASTOR_CHECK(stream != nullptr);
  const std::shared_ptr<Stream> found = Find(stream);
  if (found == nullptr) return kCudaInvalidValue;
  // Hardware would finish it; Castor has waited for it.
  CASTOR_CHECK(stuck_ != kCudaOk ||
               (found->operations.empty() && !found->running));
  streams_.erase(stream);
  return error;
}

int FakeCuda::StreamSynchronize(CudaStream stream) {
  std::unique_lock lock(mutex_);
  if (const int error = EnterUnsafe("StreamSynchronize"); error != kCudaOk) {
    return error;
  }
  const std::shared_ptr<Stream> found = Find(stream);
  if (found == nullptr) return kCudaInvalidValue;
  const int64_t position = found->queued;
  return WaitUntil([&] { return found->completed >= position; }, lock);
}

int FakeCuda::StreamIsCapturing(CudaStream stream, bool* capturing) {
  std::lock_guard lock(mutex_);
  const std::shared_ptr<Stream> found = Find(stream);
  if (found == nullptr) return kCudaInvalidValue;
  *capturing = found->capture.has_value();
  return Enter("StreamIsCapturing");
}

int FakeCuda::StreamWaitEvent(CudaStream stream, CudaEvent event) {
  Event awaited;
  {
    std::lock_guard lock(mutex_);
    const auto found = events_.find(event);
    if (found == events_.end()) return kCudaInvalidValue;
    awaited = *found->second;  // as it was recorded last
  }
  return Queue("StreamWaitEvent", stream,
               {.ready = [awaited] { return awaited.done(); }});
}

int FakeCuda::StreamWaitValue32(CudaStream stream, void* address,
                                uint32_t value) {
  if (!options_.wait_value) return kCudaNotSupported;
  if (contexts.empty()) return kCudaInvalidContext;
  const uintptr_t device = reinterpret_cast<uintptr_t>(address);
  if ((device & kDeviceBit) == 0) return kCudaInvalidValue;
  auto* const word =
      reinterpret_cast<std::atomic<uint32_t>*>(device & ~kDeviceBit);
  return Queue("StreamWaitValue32", stream, {.ready = [word, value] {
                 return static_cast<int32_t>(word->load() - value) >= 0;
               }});
}

int FakeCuda::EventCreate(CudaEvent* event) {
  std::lock_guard lock(mutex_);
  if (const int error = Enter("EventCreate"); error != kCudaOk) return error;
  *event = reinterpret_cast<CudaEvent>(next_handle_++);
  events_[*event] = std::make_shared<Event>();
  return kCudaOk;
}

int FakeCuda::EventDestroy(CudaEvent event) {
  std::lock_guard lock(mutex_);
  const int error = Enter("EventDestroy");
  return events_.erase(event) == 0 ? kCudaInvalidValue : error;
}

int FakeCuda::EventRecord(CudaEvent event, CudaStream stream) {
  const int error = Queue("EventRecord", stream, {});
  std::lock_guard lock(mutex_);
  if (error != kCudaOk) return error;
  const auto found = events_.find(event);
  if (found == events_.end()) return kCudaInvalidValue;
  const std::shared_ptr<Stream> on = Find(stream);
  *found->second = {.stream = on,
                    .position = on->queued,
                    .captured = on->capture.has_value()};
  return kCudaOk;
}

int FakeCuda::EventQuery(CudaEvent event) {
  std::lock_guard lock(mutex_);
  if (const int error = EnterUnsafe("EventQuery"); error != kCudaOk) {
    return error;
  }
  const auto found = events_.find(event);
  if (found == events_.end()) return kCudaInvalidValue;
  if (found->second->captured) return kCudaCapturedEvent;
  return found->second->done() ? kCudaOk : kCudaNotReady;
}

int FakeCuda::EventSynchronize(CudaEvent event) {
  std::unique_lock lock(mutex_);
  if (const int error = EnterUnsafe("EventSynchronize"); error != kCudaOk) {
    return error;
  }
  const auto found = events_.find(event);
  if (found == events_.end()) return kCudaInvalidValue;
  const Event awaited = *found->second;
  return WaitUntil([&] { return awaited.done(); }, lock);
}

int FakeCuda::MemcpyAsync(void* to, const void* from, int64_t size,
                          CudaStream stream) {
  return Queue("MemcpyAsync", stream, {.run = [=] {
                 std::memcpy(to, from, static_cast<size_t>(size));
               }});
}

int FakeCuda::MemsetAsync(void* to, int value, int64_t size,
                          CudaStream stream) {
  return Queue("MemsetAsync", stream, {.run = [=] {
                 std::memset(to, value, static_cast<size_t>(size));
               }});
}

int FakeCuda::QueueKernel(std::string_view call, CudaStream stream,
                          const CudaGuard& guard, std::function<void()> run) {
  const std::atomic<uint64_t>* poison = nullptr;
  if (guard.poison != nullptr) {
    const uintptr_t device = reinterpret_cast<uintptr_t>(guard.poison);
    if ((device & kDeviceBit) == 0) return kCudaInvalidValue;
    poison =
        reinterpret_cast<const std::atomic<uint64_t>*>(device & ~kDeviceBit);
  }
  if (std::unique_lock lock(mutex_); !loaded_) {
    loaded_ = true;
    const auto idle = [this] {
      return std::all_of(
          streams_.begin(), streams_.end(), [](const auto& each) {
            return !each.second->running && each.second->operations.empty();
          });
    };
    if (const int error = WaitUntil(idle, lock); error != kCudaOk) return error;
  }
  return Queue(
      call, stream,
      {.run = [poison, sequence = guard.sequence, run = std::move(run)] {
        if (poison != nullptr && poison->load() < sequence) return;
        run();
      }});
}

}  // namespace castor
