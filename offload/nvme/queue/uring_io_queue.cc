// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/queue/uring_io_queue.h"

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "offload/lanes/start_thread.h"
#include "offload/nvme/queue/transfer_queue.h"
#include "offload/nvme/queue/unique_fd.h"
#include "offload/nvme/queue/uring_setup.h"

namespace castor {
namespace {

// Marks the completion of the read that wakes the thread; transfers carry the
// index of their slot.
constexpr uint64_t kWake = UINT64_MAX;

// Orders the end of one ring before the beginning of the next. liburing maps
// rings by system calls that ThreadSanitizer does not see, so a ring at the
// address of an earlier one would look to it like that earlier ring.
std::mutex ring_mutex;

class Ring {
 public:
  Ring() = default;
  ~Ring() {
    if (!made_) return;
    const std::lock_guard<std::mutex> lock(ring_mutex);
    io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  Status Make(int entries) {
    const std::lock_guard<std::mutex> lock(ring_mutex);
    CASTOR_RETURN_IF_ERROR(SetUpRing(entries, &ring_));
    made_ = true;
    return OkStatus();
  }

  io_uring* get() { return &ring_; }

 private:
  io_uring ring_;
  bool made_ = false;
};

// The ring belongs to one thread: it alone prepares, submits and reaps, so the
// ring needs no lock and a caller never waits in the kernel for a full device.
// Whoever submits wakes it through an eventfd on which the ring always has a
// read pending. (Submitting from the callers' threads would save the wake-up,
// some microseconds against the hundreds of a transfer, and would let a
// submission that blocks in the kernel block the caller.) It uses the ring from
// the first request on, because older kernels register files and memory only
// while nothing is pending.
class UringIoQueue final : public IoQueue {
 public:
  explicit UringIoQueue(const IoQueueOptions& options)
      : transfers_(options.piece, options.patience),
        slots_(static_cast<size_t>(options.depth)) {
    for (size_t i = slots_.size(); i > 0; --i) free_.push_back(i - 1);
  }

  Status SetUp() {
    wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    if (!wake_.valid()) return RingRefused(errno);
    // One entry more than transfers: the wake-up.
    CASTOR_RETURN_IF_ERROR(ring_.Make(static_cast<int>(slots_.size()) + 1));
    return OrThreadLimit([this]() -> Status {
      thread_ = StartThread([this] { Serve(); });
      return OkStatus();
    });
  }

  ~UringIoQueue() override {
    transfers_.Close();
    if (!thread_.joinable()) return;
    Begin();
    Wake();
    thread_.join();
  }

  IoTicket Submit(IoRequest request) override {
    Begin();
    const IoTicket ticket = transfers_.Add(std::move(request));
    Wake();
    return ticket;
  }
  bool Raise(IoTicket ticket, IoPriority priority) override {
    return transfers_.Raise(ticket, priority);
  }
  bool Cancel(IoTicket ticket) override { return transfers_.Cancel(ticket); }

  Status RegisterFile(int fd) override {
    CASTOR_CHECK(!begun_);
    CASTOR_RETURN_IF_ERROR(RegisterRingFile(fd, ring_.get()));
    fixed_file_ = fd;
    return OkStatus();
  }
  Result<Bytes> RegisterMemory(std::span<std::byte> memory) override {
    CASTOR_CHECK(!begun_);
    CASTOR_RETURN_IF_ERROR(RegisterRingMemory(memory, ring_.get()));
    fixed_memory_ = memory;
    return Bytes(static_cast<int64_t>(memory.size()));
  }

  std::string_view name() const override { return "io_uring"; }

 private:
  // One wake-up under way is enough: whoever takes it sees every request. The
  // thread itself looks for requests after each completion.
  void Wake() {
    if (std::this_thread::get_id() == thread_.get_id()) return;
    if (waking_.exchange(true)) return;
    const uint64_t one = 1;
    ssize_t written = 0;
    do {
      written = ::write(wake_.get(), &one, sizeof(one));
    } while (written < 0 && errno == EINTR);
    CASTOR_CHECK_EQ(written, static_cast<ssize_t>(sizeof(one)));
  }

  void Begin() {
    if (!begun_.exchange(true)) begun_.notify_one();
  }

  void Serve() {
    begun_.wait(false);
    Arm();
    for (;;) {
      Fill();
      // Nothing in flight, nothing waiting, and closed: see Reap.
      if (!armed_ && free_.size() == slots_.size()) break;
      const int result = io_uring_submit_and_wait(ring_.get(), 1);
      if (result == -EAGAIN || result == -EBUSY) {
        // Short of memory for the moment, or of room for completions, which are
        // taken below.
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else if (result != -EINTR) {
        CASTOR_CHECK_GE(result, 0);
      }
      Reap();
    }
    CASTOR_CHECK(transfers_.drained());
  }

  // Starts waiting transfers while there is a slot for them.
  void Fill() {
    TransferQueue::Transfer transfer;
    while (!free_.empty() && transfers_.TryNext(&transfer)) {
      if (transfer.size == Bytes(0)) {
        transfers_.Advance(&transfer, 0);
        continue;
      }
      const size_t slot = free_.back();
      free_.pop_back();
      slots_[slot] = transfer;
      Issue(slot);
    }
  }

  void Issue(size_t slot) {
    const TransferQueue::Transfer& transfer = slots_[slot];
    io_uring_sqe* entry = Entry();
    const bool read = transfer.direction == IoDirection::kRead;
    const bool fixed_file = transfer.fd == fixed_file_;
    const int file = fixed_file ? 0 : transfer.fd;
    const unsigned size = static_cast<unsigned>(transfer.size.count());
    const uint64_t offset = static_cast<uint64_t>(transfer.offset.count());
    const std::optional<int> buffer = FixedBuffer(transfer);
    if (buffer && read) {
      io_uring_prep_read_fixed(entry, file, transfer.data, size, offset,
                               *buffer);
    } else if (buffer) {
      io_uring_prep_write_fixed(entry, file, transfer.data, size, offset,
                                *buffer);
    } else if (read) {
      io_uring_prep_read(entry, file, transfer.data, size, offset);
    } else {
      io_uring_prep_write(entry, file, transfer.data, size, offset);
    }
    if (fixed_file) entry->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(entry, slot);
  }

  // The registered buffer that holds all of the transfer's memory.
  std::optional<int> FixedBuffer(
      const TransferQueue::Transfer& transfer) const {
    const uintptr_t base = reinterpret_cast<uintptr_t>(fixed_memory_.data());
    const uintptr_t begin = reinterpret_cast<uintptr_t>(transfer.data);
    if (begin < base) return std::nullopt;
    const uint64_t from = begin - base;
    const uint64_t to = from + static_cast<uint64_t>(transfer.size.count());
    if (to > fixed_memory_.size()) return std::nullopt;
    const uint64_t piece = static_cast<uint64_t>(kRegisteredPiece.count());
    if (from / piece != (to - 1) / piece) return std::nullopt;
    return static_cast<int>(from / piece);
  }

  void Arm() {
    io_uring_sqe* entry = Entry();
    io_uring_prep_read(entry, wake_.get(), &wake_count_, sizeof(wake_count_),
                       0);
    io_uring_sqe_set_data64(entry, kWake);
    armed_ = true;
  }

  io_uring_sqe* Entry() {
    // There are as many entries as slots and wake-ups, so one is free.
    io_uring_sqe* entry = io_uring_get_sqe(ring_.get());
    CASTOR_CHECK(entry != nullptr);
    return entry;
  }

  void Reap() {
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(ring_.get(), &completion) == 0) {
      const uint64_t slot = io_uring_cqe_get_data64(completion);
      const int result = completion->res;
      io_uring_cqe_seen(ring_.get(), completion);
      if (slot == kWake) {
        armed_ = false;
        // Before the requests are looked at again: who comes later wakes anew.
        // An exchange, to see what those did who did not wake.
        waking_.exchange(false);
        // Once closed, all requests are there and nobody wakes the thread: the
        // completions of transfers alone drive it to its end.
        if (!transfers_.closed()) Arm();
      } else if (transfers_.Advance(&slots_[slot], result)) {
        Issue(slot);
      } else {
        free_.push_back(slot);
        // At once: what its request's end costs is no pause for the drive.
        Fill();
        // What it cannot submit now, the next wait submits.
        io_uring_submit(ring_.get());
      }
    }
  }

  TransferQueue transfers_;
  UniqueFd wake_;
  std::atomic<bool> waking_ = false;
  std::atomic<bool> begun_ = false;  // the thread may use the ring
  // Set before the thread starts.
  int fixed_file_ = -2;  // none: no descriptor, not even a bad one
  std::span<std::byte> fixed_memory_;
  // What follows belongs to the thread once it runs.
  Ring ring_;
  std::vector<TransferQueue::Transfer> slots_;
  std::vector<size_t> free_;
  uint64_t wake_count_ = 0;
  bool armed_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<IoQueue>> MakeUringIoQueue(
    const IoQueueOptions& options) {
  CASTOR_CHECK_GE(options.depth, 1);
  CASTOR_CHECK_LE(options.depth, 4096);
  auto queue = std::make_unique<UringIoQueue>(options);
  CASTOR_RETURN_IF_ERROR(queue->SetUp());
  return std::unique_ptr<IoQueue>(std::move(queue));
}

}  // namespace castor
