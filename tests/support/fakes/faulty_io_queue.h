// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FAKES_FAULTY_IO_QUEUE_H_
#define CASTOR_TESTS_SUPPORT_FAKES_FAULTY_IO_QUEUE_H_

// An IoQueue around a real one that misbehaves on cue: the nth read or write,
// counted from 1, fails, is corrupted, or moves only half of its bytes and says
// that all is well; or requests are held back until the test lets them go. The
// test keeps the IoFaults, whoever uses the queue owns the queue. Thread-safe.
//
//   auto faults = std::make_shared<IoFaults>();
//   faults->Inject(IoDirection::kRead, 3, IoFault::kCorrupt);
//   options.make_queue = [faults](size_t) {
//     return MakeFaultyIoQueue(MakeThreadIoQueue({}), faults);
//   };

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/nvme/queue/io_queue.h"
#include "tests/support/aligned_bytes.h"

namespace castor {

enum class IoFault {
  kFail,     // IoError, no byte moved
  kCorrupt,  // one bit in the middle is flipped
  kHalf,     // the second half is not moved
};

class IoFaults {
 public:
  void Inject(IoDirection direction, int64_t nth, IoFault fault) {
    std::lock_guard lock(mutex_);
    faults_[{direction, nth}] = fault;
  }
  // Requests submitted from now on wait until Release.
  void Hold() {
    std::lock_guard lock(mutex_);
    holding_ = true;
  }
  void Release() {
    std::lock_guard releasing(release_mutex_);
    std::vector<Held> held;
    {
      std::lock_guard lock(mutex_);
      holding_ = false;
      held.swap(held_);
    }
    for (Held& each : held) each.queue->Submit(std::move(each.request));
  }
  // Requests seen so far.
  int64_t count(IoDirection direction) const {
    std::lock_guard lock(mutex_);
    return direction == IoDirection::kRead ? reads_ : writes_;
  }

 private:
  friend class FaultyIoQueue;
  struct Held {
    IoQueue* queue;
    IoRequest request;
  };

  // Held while requests are let go, so that the queue is not destroyed before
  // the last call of Submit has returned.
  std::mutex release_mutex_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::map<std::pair<IoDirection, int64_t>, IoFault> faults_;
  std::vector<Held> held_;
  bool holding_ = false;
  int64_t reads_ = 0;
  int64_t writes_ = 0;
};

class FaultyIoQueue final : public IoQueue {
 public:
  FaultyIoQueue(std::unique_ptr<IoQueue> real, std::shared_ptr<IoFaults> faults)
      : faults_(std::move(faults)), real_(std::move(real)) {}
  ~FaultyIoQueue() override { std::lock_guard lock(faults_->release_mutex_); }

  // A request that is held back cannot be raised or cancelled.
  IoTicket Submit(IoRequest request) override {
    std::unique_lock lock(faults_->mutex_);
    int64_t& count = request.direction == IoDirection::kRead ? faults_->reads_
                                                             : faults_->writes_;
    const auto fault = faults_->faults_.find({request.direction, ++count});
    if (fault != faults_->faults_.end()) {
      request = Misbehave(std::move(request), fault->second);
    }
    if (faults_->holding_) {
      faults_->held_.push_back({real_.get(), std::move(request)});
      return {};
    }
    lock.unlock();
    return real_->Submit(std::move(request));
  }
  bool Raise(IoTicket ticket, IoPriority priority) override {
    return real_->Raise(ticket, priority);
  }
  bool Cancel(IoTicket ticket) override { return real_->Cancel(ticket); }
  Status RegisterFile(int fd) override { return real_->RegisterFile(fd); }
  Result<Bytes> RegisterMemory(std::span<std::byte> memory) override {
    return real_->RegisterMemory(memory);
  }
  std::string_view name() const override { return real_->name(); }

 private:
  static IoRequest Misbehave(IoRequest request, IoFault fault) {
    const bool read = request.direction == IoDirection::kRead;
    const size_t size = static_cast<size_t>(request.size.count());
    switch (fault) {
      case IoFault::kFail:
        // Nothing to move: the real queue calls back on a thread of its own.
        request.size = Bytes(0);
        request.done = [done = std::move(request.done)](const Status&) {
          done(IoError("injected: Input/output error (errno 5)"));
        };
        break;
      case IoFault::kHalf:
        request.size = RoundDown(request.size / 2, KiB(4));
        break;
      case IoFault::kCorrupt:
        CASTOR_CHECK_GT(size, 0u);
        if (read) {
          request.done = [done = std::move(request.done), data = request.data,
                          size](const Status& status) {
            data[size / 2] ^= std::byte{1};
            done(status);
          };
        } else {
          // The caller's memory is not to be written.
          auto copy = std::make_shared<AlignedBytes>(request.size);
          std::memcpy(copy->data(), request.data, size);
          copy->data()[size / 2] ^= std::byte{1};
          request.data = copy->data();
          request.done = [done = std::move(request.done),
                          copy](const Status& status) { done(status); };
        }
        break;
    }
    return request;
  }

  const std::shared_ptr<IoFaults> faults_;
  const std::unique_ptr<IoQueue> real_;
};

inline std::unique_ptr<IoQueue> MakeFaultyIoQueue(
    std::unique_ptr<IoQueue> real, std::shared_ptr<IoFaults> faults) {
  return std::make_unique<FaultyIoQueue>(std::move(real), std::move(faults));
}

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FAKES_FAULTY_IO_QUEUE_H_
