// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/queue/simulated_io_queue.h"

#include <cerrno>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "chunk/base/check.h"
#include "offload/lanes/event.h"
#include "offload/nvme/queue/transfer_queue.h"

namespace castor {
namespace {

// Outlives its queue by the task that ends last.
class Drive : public std::enable_shared_from_this<Drive> {
 public:
  explicit Drive(SimulatedIoQueueOptions options)
      : options_(std::move(options)),
        transfers_(options_.queue.piece, options_.queue.patience) {
    CASTOR_CHECK(options_.executor != nullptr);
    CASTOR_CHECK(options_.wires != nullptr ||
                 (options_.links != nullptr && options_.timer != nullptr));
    CASTOR_CHECK_GE(options_.queue.depth, 1);
  }

  TransferQueue& transfers() { return transfers_; }

  // Sends out what the drive takes.
  void Start() {
    std::lock_guard lock(mutex_);
    StartLocked();
  }

  // When nothing is in flight any more. REQUIRES: nothing is added any more.
  Event Idle() {
    std::lock_guard lock(mutex_);
    if (in_flight_ == 0) return Event();
    return idle_.emplace().event();
  }

 private:
  void StartLocked() {
    TransferQueue::Transfer next;
    while (in_flight_ < options_.queue.depth && transfers_.TryNext(&next)) {
      ++in_flight_;
      if (options_.wires != nullptr) {
        ServeOnWires(next);
        continue;
      }
      const CopyKind kind = next.direction == IoDirection::kRead
                                ? CopyKind::kToDevice
                                : CopyKind::kFromDevice;
      const int64_t end =
          options_.links->Book(kind, options_.timer->NowNs(), next.size);
      options_.executor->Post(
          [self = shared_from_this(), next, end] { self->Serve(next, end); });
    }
  }

  // Counted time: the whole transfer at once, on the thread that asks.
  void ServeOnWires(const TransferQueue::Transfer& transfer) {
    const internal::Traffic kind = transfer.direction == IoDirection::kRead
                                       ? internal::Traffic::kDriveRead
                                       : internal::Traffic::kDriveWrite;
    options_.wires->Begin(
        kind, transfer.size, [self = shared_from_this(), transfer] {
          self->options_.executor->Post([self, transfer] {
            self->TakeAnswer(transfer, 0, self->Move(transfer));
          });
        });
  }

  // Moves what the system moves in one call, whose answer counts at `end_ns`:
  // then whoever waits for it goes on, on the executor, because the timer's
  // other tasks wait for this one.
  void Serve(const TransferQueue::Transfer& transfer, int64_t end_ns) {
    options_.timer->At(end_ns, [self = shared_from_this(), transfer, end_ns,
                                answer = Move(transfer)] {
      self->options_.executor->Post([self, transfer, end_ns, answer] {
        self->TakeAnswer(transfer, end_ns, answer);
      });
    });
  }

  int64_t Move(const TransferQueue::Transfer& transfer) const {
    const auto size = static_cast<size_t>(transfer.size.count());
    if (size == 0) return 0;
    const FileCalls& calls = options_.calls;
    const int64_t moved = transfer.direction == IoDirection::kRead
                              ? calls.pread(transfer.fd, transfer.data, size,
                                            transfer.offset.count())
                              : calls.pwrite(transfer.fd, transfer.data, size,
                                             transfer.offset.count());
    return moved >= 0 ? moved : -errno;
  }

  void TakeAnswer(TransferQueue::Transfer transfer, int64_t end_ns,
                  int64_t answer) {
    if (transfers_.Advance(&transfer, answer)) {
      if (options_.wires != nullptr) return ServeOnWires(transfer);
      return Serve(transfer, end_ns);
    }
    std::optional<EventSource> idle;
    {
      std::lock_guard lock(mutex_);
      --in_flight_;
      StartLocked();
      if (in_flight_ == 0) idle = std::exchange(idle_, std::nullopt);
    }
    if (idle.has_value()) idle->Complete();
  }

  const SimulatedIoQueueOptions options_;
  TransferQueue transfers_;

  std::mutex mutex_;
  int in_flight_ = 0;                // guarded by mutex_
  std::optional<EventSource> idle_;  // somebody waits; guarded by mutex_
};

class SimulatedIoQueue final : public IoQueue {
 public:
  explicit SimulatedIoQueue(SimulatedIoQueueOptions options)
      : drive_(std::make_shared<Drive>(std::move(options))) {}

  ~SimulatedIoQueue() override {
    drive_->transfers().Close();
    drive_->Idle().Wait().IgnoreError();
  }

  IoTicket Submit(IoRequest request) override {
    const IoTicket ticket = drive_->transfers().Add(std::move(request));
    drive_->Start();
    return ticket;
  }
  bool Raise(IoTicket ticket, IoPriority priority) override {
    return drive_->transfers().Raise(ticket, priority);
  }
  bool Cancel(IoTicket ticket) override {
    return drive_->transfers().Cancel(ticket);
  }
  std::string_view name() const override { return "simulated"; }

 private:
  const std::shared_ptr<Drive> drive_;
};

}  // namespace

SimulatedLinkModels DriveModelOf(const TierModel& model) {
  return {.to_device = model.nvme_read,
          .from_device = model.nvme_write,
          .within_device = std::nullopt,
          .duplex = Duplex::kHalf};
}

std::unique_ptr<IoQueue> MakeSimulatedIoQueue(SimulatedIoQueueOptions options) {
  return std::make_unique<SimulatedIoQueue>(std::move(options));
}

}  // namespace castor
