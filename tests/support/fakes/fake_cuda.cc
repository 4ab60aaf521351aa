// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/fakes/fake_cuda.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/clock.h"

namespace castor {
namespace {

// How often a stream looks at what it waits for.
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

FakeCuda::FakeCuda(FakeCudaOptions options)
    : options_(options), memory_(options.total_bytes) {
  contexts.clear();
  // The default stream.
  streams_[nullptr] = MakeStream(0);
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
          .allocations = memory_.pieces(),
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

std::unique_lock<std::mutex> FakeCuda::LockContext() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    const auto holder = in_context_.find(CurrentDevice());
    return holder == in_context_.end() ||
           holder->second == std::this_thread::get_id();
  });
  return lock;
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

std::shared_ptr<FakeCuda::Stream> FakeCuda::MakeStream(int device) {
  auto stream = std::make_shared<Stream>();
  stream->device = device;
  auto& queues = queues_[device];
  const int number = streams_made_[device]++;
  const int most = options_.hardware_queues;
  if (most == 0) {
    stream->queue = std::make_shared<HardwareQueue>();
    return stream;
  }
  if (number < most) queues.push_back(std::make_shared<HardwareQueue>());
  stream->queue = queues[static_cast<size_t>(number % most)];
  return stream;
}

bool FakeCuda::IsPageable(const void* data) const {
  if (!options_.knows_pageable || memory_.Owns(data)) return false;
  const auto* const address = static_cast<const std::byte*>(data);
  for (const auto& [start, length] : registrations_) {
    if (address >= start && address < start + length) return false;
  }
  return true;
}

std::shared_ptr<FakeCuda::Stream> FakeCuda::Find(CudaStream stream) {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second;
}

int FakeCuda::Queue(std::string_view call, CudaStream stream,
                    Operation operation) {
  auto lock = LockContext();
  if (const int error = Enter(call, &operation.fails_with); error != kCudaOk) {
    return error;
  }
  const std::shared_ptr<Stream> found = Find(stream);
  if (found == nullptr) return kCudaInvalidValue;
  if (found->capture) return kCudaOk;  // it is the graph's
  const auto has_room = [&] {
    return found->queue->size() < options_.launch_queue;
  };
  if (!has_room()) {
    if (const int error = WaitInContext(has_room, lock); error != kCudaOk) {
      return error;
    }
  }
  found->operations.push_back(std::move(operation));
  found->queue->push_back(found.get());
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

void FakeCuda::LaunchFirst(CudaStream stream, std::function<void()> work) {
  {
    auto lock = LockContext();
    Load(lock);
  }
  Launch(stream, std::move(work));
}

int FakeCuda::Load(std::unique_lock<std::mutex>& lock) {
  const auto idle = [this, device = CurrentDevice()] {
    return std::ranges::all_of(streams_, [device](const auto& each) {
      const Stream& stream = *each.second;
      return stream.device != device ||
             (!stream.running && stream.operations.empty());
    });
  };
  return WaitInContext(idle, lock);
}

std::shared_ptr<FakeCuda::Stream> FakeCuda::NextReady() {
  for (const auto& [handle, stream] : streams_) {
    if (CanRun(*stream)) return stream;
  }
  return nullptr;
}

bool FakeCuda::CanRun(const Stream& stream) const {
  if (stream.running || stream.operations.empty()) return false;
  if (stream.queue->front() != &stream) return false;
  const Operation& next = stream.operations.front();
  return next.ready == nullptr || next.ready();
}

void FakeCuda::Run(const std::shared_ptr<Stream>& stream,
                   std::unique_lock<std::mutex>& lock) {
  Operation operation = std::move(stream->operations.front());
  stream->operations.pop_front();
  stream->queue->pop_front();
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
  if (stuck_ != kCudaOk || !CanRun(*found)) return false;
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

int FakeCuda::WaitInContext(const std::function<bool()>& done,
                            std::unique_lock<std::mutex>& lock) {
  const int device = CurrentDevice();
  in_context_[device] = std::this_thread::get_id();
  const int error = WaitUntil(done, lock);
  in_context_.erase(device);
  changed_.notify_all();
  return error;
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
  const auto lock = LockContext();
  *count = options_.devices;
  return EnterDriver("GetDeviceCount");
}

int FakeCuda::RetainContext(int device, CudaContext* context) {
  const auto lock = LockContext();
  if (const int error = EnterDriver("RetainContext"); error != kCudaOk) {
    return error;
  }
  *context = ContextOf(device);
  contexts_.insert(device);
  ++retained_[device];
  return kCudaOk;
}

int FakeCuda::ReleaseContext(int device) {
  const auto lock = LockContext();
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
  const auto lock = LockContext();
  const int error = Enter("LoadKernels");
  loaded_ = error == kCudaOk;
  return error;
}

int FakeCuda::GetProperties(int device, CudaDeviceProperties* properties) {
  const auto lock = LockContext();
  *properties = {.name = "Fake GPU " + std::to_string(device),
                 .pci_bus_id = "0000:00:00.0",
                 .total_bytes = options_.total_bytes,
                 .numa_node = options_.numa_node};
  return EnterDriver("GetProperties");
}

int FakeCuda::MemGetInfo(int64_t* free_bytes, int64_t* total_bytes) {
  const auto lock = LockContext();
  *free_bytes = options_.total_bytes - memory_.taken();
  *total_bytes = options_.total_bytes;
  return Enter("MemGetInfo");
}

int FakeCuda::Malloc(int64_t size, void** data) {
  const auto lock = LockContext();
  if (const int error = EnterUnsafe("Malloc"); error != kCudaOk) return error;
  *data = memory_.Take(size);
  return *data == nullptr ? kCudaOutOfMemory : kCudaOk;
}

int FakeCuda::Free(void* data) {
  const auto lock = LockContext();
  const int error = EnterUnsafe("Free");
  if (!memory_.Give(data)) return kCudaInvalidValue;
  return error;
}

int FakeCuda::HostRegister(void* data, int64_t size) {
  const auto lock = LockContext();
  if (const int error = EnterUnsafe("HostRegister"); error != kCudaOk) {
    return error;
  }
  const bool fresh =
      registrations_.insert({static_cast<std::byte*>(data), size}).second;
  return fresh ? kCudaOk : kCudaInvalidValue;
}

int FakeCuda::HostUnregister(void* data) {
  const auto lock = LockContext();
  const int error = EnterUnsafe("HostUnregister");
  if (registrations_.erase(static_cast<std::byte*>(data)) == 0) {
    return kCudaInvalidValue;
  }
  return error;
}

int FakeCuda::StreamCreate(CudaStream* stream) {
  const auto lock = LockContext();
  if (const int error = Enter("StreamCreate"); error != kCudaOk) return error;
  *stream = reinterpret_cast<CudaStream>(next_handle_++);
  streams_[*stream] = MakeStream(CurrentDevice());
  return kCudaOk;
}

int FakeCuda::StreamDestroy(CudaStream stream) {
  const auto lock = LockContext();
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
  auto lock = LockContext();
  if (const int error = EnterUnsafe("StreamSynchronize"); error != kCudaOk) {
    return error;
  }
  const std::shared_ptr<Stream> found = Find(stream);
  if (found == nullptr) return kCudaInvalidValue;
  const int64_t position = found->queued;
  return WaitUntil([&] { return found->completed >= position; }, lock);
}

int FakeCuda::StreamIsCapturing(CudaStream stream, bool* capturing) {
  const auto lock = LockContext();
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

int FakeCuda::EventCreate(EventTimes times, CudaEvent* event) {
  const auto lock = LockContext();
  if (const int error = Enter("EventCreate"); error != kCudaOk) return error;
  *event = reinterpret_cast<CudaEvent>(next_handle_++);
  events_[*event] = std::make_shared<Event>();
  events_[*event]->takes_time = times == EventTimes::kTaken;
  return kCudaOk;
}

int FakeCuda::EventDestroy(CudaEvent event) {
  const auto lock = LockContext();
  const int error = Enter("EventDestroy");
  return events_.erase(event) == 0 ? kCudaInvalidValue : error;
}

int FakeCuda::EventRecord(CudaEvent event, CudaStream stream) {
  const auto at_ns = std::make_shared<int64_t>(0);
  const int error = Queue("EventRecord", stream,
                          {.run = [at_ns] { *at_ns = SteadyClock().NowNs(); }});
  std::lock_guard lock(mutex_);
  if (error != kCudaOk) return error;
  const auto found = events_.find(event);
  if (found == events_.end()) return kCudaInvalidValue;
  const std::shared_ptr<Stream> on = Find(stream);
  *found->second = {.stream = on,
                    .position = on->queued,
                    .captured = on->capture.has_value(),
                    .takes_time = found->second->takes_time,
                    .at_ns = at_ns};
  return kCudaOk;
}

int FakeCuda::EventQuery(CudaEvent event) {
  const auto lock = LockContext();
  if (const int error = EnterUnsafe("EventQuery"); error != kCudaOk) {
    return error;
  }
  const auto found = events_.find(event);
  if (found == events_.end()) return kCudaInvalidValue;
  if (found->second->captured) return kCudaCapturedEvent;
  return found->second->done() ? kCudaOk : kCudaNotReady;
}

int FakeCuda::EventSynchronize(CudaEvent event) {
  auto lock = LockContext();
  if (const int error = EnterUnsafe("EventSynchronize"); error != kCudaOk) {
    return error;
  }
  const auto found = events_.find(event);
  if (found == events_.end()) return kCudaInvalidValue;
  const Event awaited = *found->second;
  return WaitUntil([&] { return awaited.done(); }, lock);
}

int FakeCuda::EventElapsed(CudaEvent begin, CudaEvent end,
                           float* milliseconds) {
  const auto lock = LockContext();
  if (const int error = Enter("EventElapsed"); error != kCudaOk) return error;
  const auto first = events_.find(begin);
  const auto last = events_.find(end);
  if (first == events_.end() || last == events_.end()) return kCudaInvalidValue;
  for (const auto& event : {first->second, last->second}) {
    if (!event->takes_time || event->at_ns == nullptr) {
      return kCudaInvalidHandle;
    }
    if (!event->done()) return kCudaNotReady;
  }
  *milliseconds = static_cast<float>(
      static_cast<double>(*last->second->at_ns - *first->second->at_ns) * 1e-6);
  return kCudaOk;
}

int FakeCuda::MemcpyAsync(void* to, const void* from, int64_t size,
                          CudaStream stream) {
  const int error =
      Queue("MemcpyAsync", stream, {.run = [=, this] {
              std::memcpy(Reach(to), Reach(from), static_cast<size_t>(size));
            }});
  std::unique_lock lock(mutex_);
  if (error != kCudaOk || !(IsPageable(to) || IsPageable(from))) return error;
  const std::shared_ptr<Stream> found = Find(stream);
  const int64_t position = found->queued;
  return WaitUntil([&] { return found->completed >= position; }, lock);
}

int FakeCuda::MemsetAsync(void* to, int value, int64_t size,
                          CudaStream stream) {
  return Queue("MemsetAsync", stream, {.run = [=, this] {
                 std::memset(Reach(to), value, static_cast<size_t>(size));
               }});
}

int FakeCuda::QueueKernel(std::string_view call, CudaStream stream,
                          std::function<void()> run) {
  if (auto lock = LockContext(); !loaded_) {
    loaded_ = true;
    if (const int error = Load(lock); error != kCudaOk) return error;
  }
  return Queue(call, stream, {.run = std::move(run)});
}

}  // namespace castor
