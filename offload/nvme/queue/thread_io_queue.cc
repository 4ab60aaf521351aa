// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/queue/thread_io_queue.h"

#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "offload/lanes/start_thread.h"
#include "offload/nvme/queue/transfer_queue.h"

namespace castor {
namespace {

class ThreadIoQueue final : public IoQueue {
 public:
  ThreadIoQueue(const IoQueueOptions& options, FileCalls calls)
      : calls_(std::move(calls)), transfers_(options.piece, options.patience) {
    CASTOR_CHECK_GE(options.threads, 1);
    try {
      for (int i = 0; i < options.threads; ++i) {
        threads_.push_back(StartThread([this] { Serve(); }));
      }
    } catch (const ThreadLimit&) {
      Stop();
      throw;
    }
  }

  ~ThreadIoQueue() override { Stop(); }

  IoTicket Submit(IoRequest request) override {
    return transfers_.Add(std::move(request));
  }
  bool Raise(IoTicket ticket, IoPriority priority) override {
    return transfers_.Raise(ticket, priority);
  }
  bool Cancel(IoTicket ticket) override { return transfers_.Cancel(ticket); }
  std::string_view name() const override { return "threads"; }

 private:
  void Stop() {
    transfers_.Close();
    for (std::thread& thread : threads_) thread.join();
  }

  void Serve() {
    TransferQueue::Transfer transfer;
    while (transfers_.WaitNext(&transfer)) {
      while (transfers_.Advance(&transfer, Move(transfer))) {
      }
    }
  }

  int64_t Move(const TransferQueue::Transfer& transfer) {
    const size_t size = static_cast<size_t>(transfer.size.count());
    if (size == 0) return 0;
    const int64_t moved = transfer.direction == IoDirection::kRead
                              ? calls_.pread(transfer.fd, transfer.data, size,
                                             transfer.offset.count())
                              : calls_.pwrite(transfer.fd, transfer.data, size,
                                              transfer.offset.count());
    return moved >= 0 ? moved : -errno;
  }

  const FileCalls calls_;
  TransferQueue transfers_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoQueue> MakeThreadIoQueue(const IoQueueOptions& options,
                                           FileCalls calls) {
  return std::make_unique<ThreadIoQueue>(options, std::move(calls));
}

}  // namespace castor
