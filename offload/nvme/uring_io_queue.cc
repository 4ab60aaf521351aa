// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/uring_io_queue.h"

#include <fmt/format.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "offload/nvme/transfer_queue.h"
#include "offload/nvme/unique_fd.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// liburing maps and unmaps its rings by system calls of its own, which
// ThreadSanitizer does not see: a ring at the address of one that is gone looks
// to it like the old one. What touches ring memory is in liburing's header.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:liburing/liburing.h\n";
}
#endif
#endif

namespace castor {
namespace {

// Marks the completion of the read that wakes the thread; transfers carry the
// index of their slot.
constexpr uint64_t kWake = UINT64_MAX;

Status Refused(int error) {
  std::string_view remedy;
  switch (error) {
    case ENOSYS:
      remedy =
          "use Linux 5.6 or later, and a container whose seccomp profile "
          "allows io_uring";
      break;
    case EPERM:
    case EACCES:
      remedy =
          "set sysctl kernel.io_uring_disabled=0, or use a container whose "
          "seccomp profile allows io_uring";
      break;
    case ENOMEM:
      remedy = "raise the limit of locked memory (ulimit -l)";
      break;
    case EMFILE:
    case ENFILE:
      remedy = "raise the limit of open files (ulimit -n)";
      break;
    default:
      remedy = "see io_uring_setup(2)";
  }
  return Unavailable(
      fmt::format("the kernel refuses io_uring: {} (errno {}); "
                  "to have it, {}",
                  std::generic_category().message(error), error, remedy));
}

class Ring {
 public:
  Ring() = default;
  ~Ring() {
    if (made_) io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  Status Make(int entries) {
    if (int result =
            io_uring_queue_init(static_cast<unsigned>(entries), &ring_, 0);
        result < 0) {
      return Refused(-result);
    }
    made_ = true;
    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    const bool reads_and_writes =
        probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) &&
        io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    return reads_and_writes ? OkStatus() : Refused(ENOSYS);
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
// submission that blocks in the kernel block the caller.)
class UringIoQueue final : public IoQueue {
 public:
  explicit UringIoQueue(const IoQueueOptions& options)
      : transfers_(options.piece), slots_(static_cast<size_t>(options.depth)) {
    for (size_t i = slots_.size(); i > 0; --i) free_.push_back(i - 1);
  }

  Status Start() {
    wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    if (!wake_.valid()) return Refused(errno);
    // One entry more than transfers: the wake-up.
    CASTOR_RETURN_IF_ERROR(ring_.Make(static_cast<int>(slots_.size()) + 1));
    thread_ = std::thread([this] { Serve(); });
    return OkStatus();
  }

  ~UringIoQueue() override {
    transfers_.Close();
    if (!thread_.joinable()) return;
    Wake();
    thread_.join();
  }

  void Submit(IoRequest request) override {
    transfers_.Add(std::move(request));
    Wake();
  }
  std::string_view name() const override { return "io_uring"; }

 private:
  void Wake() {
    const uint64_t one = 1;
    ssize_t written = 0;
    do {
      written = ::write(wake_.get(), &one, sizeof(one));
    } while (written < 0 && errno == EINTR);
    CASTOR_CHECK_EQ(written, static_cast<ssize_t>(sizeof(one)));
  }

  void Serve() {
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
    const unsigned size = static_cast<unsigned>(transfer.size.count());
    const uint64_t offset = static_cast<uint64_t>(transfer.offset.count());
    if (transfer.direction == IoDirection::kRead) {
      io_uring_prep_read(entry, transfer.fd, transfer.data, size, offset);
    } else {
      io_uring_prep_write(entry, transfer.fd, transfer.data, size, offset);
    }
    io_uring_sqe_set_data64(entry, slot);
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
        // Once closed, all requests are there and nobody wakes the thread: the
        // completions of transfers alone drive it to its end.
        if (!transfers_.closed()) Arm();
      } else if (transfers_.Advance(&slots_[slot], result)) {
        Issue(slot);
      } else {
        free_.push_back(slot);
      }
    }
  }

  TransferQueue transfers_;
  UniqueFd wake_;
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
  CASTOR_RETURN_IF_ERROR(queue->Start());
  return std::unique_ptr<IoQueue>(std::move(queue));
}

}  // namespace castor
