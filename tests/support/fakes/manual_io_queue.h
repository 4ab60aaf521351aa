// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FAKES_MANUAL_IO_QUEUE_H_
#define CASTOR_TESTS_SUPPORT_FAKES_MANUAL_IO_QUEUE_H_

// An IoQueue that a test cranks by hand: transfers wait until the test runs
// them, one by one, on its own thread, or takes one and answers it later, as a
// drive that is busy with it. So the order in which a store asks for transfers
// becomes a plain sequence of names. The test keeps the ManualIo, whoever uses
// the queue owns the queue. Thread-safe.
//
//   auto io = std::make_shared<ManualIo>(MiB(1));
//   options.make_queue = [io](size_t) { return MakeManualIoQueue(io); };
//   EXPECT_EQ(io->RunOne(), "write 1048576 at 0");

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/units.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/nvme/queue/transfer_queue.h"

namespace castor {

class ManualIo {
 public:
  using Transfer = TransferQueue::Transfer;

  explicit ManualIo(Bytes piece, int patience = 16)
      : transfers_(piece, patience) {}

  // The next transfer, which is with the drive until Finish; none: none waits.
  std::optional<Transfer> Take() {
    Transfer transfer;
    if (!transfers_.TryNext(&transfer)) return std::nullopt;
    return transfer;
  }
  // Moves its bytes. With `error` it fails with that errno instead.
  void Finish(Transfer transfer, int error = 0) {
    while (
        transfers_.Advance(&transfer, error != 0 ? -error : Move(transfer))) {
    }
  }
  // Its bytes were moved, all of them, by the test itself.
  void Moved(Transfer transfer) {
    const bool more = transfers_.Advance(&transfer, transfer.size.count());
    CASTOR_CHECK(!more);
  }
  static std::string Name(const Transfer& transfer) {
    return std::string(transfer.direction == IoDirection::kRead ? "read "
                                                                : "write ") +
           std::to_string(transfer.size.count()) + " at " +
           std::to_string(transfer.offset.count());
  }

  // Takes one and finishes it. Its name; empty where none waits.
  std::string RunOne(int error = 0) {
    const std::optional<Transfer> transfer = Take();
    if (!transfer) return "";
    Finish(*transfer, error);
    return Name(*transfer);
  }
  // Runs transfers until none waits. How many ran.
  int RunAll() {
    int ran = 0;
    while (!RunOne().empty()) ++ran;
    return ran;
  }

 private:
  friend class ManualIoQueue;

  static int64_t Move(const Transfer& transfer) {
    const size_t size = static_cast<size_t>(transfer.size.count());
    if (size == 0) return 0;
    const ssize_t moved =
        transfer.direction == IoDirection::kRead
            ? ::pread(transfer.fd, transfer.data, size, transfer.offset.count())
            : ::pwrite(transfer.fd, transfer.data, size,
                       transfer.offset.count());
    return moved >= 0 ? moved : -errno;
  }

  TransferQueue transfers_;
};

class ManualIoQueue final : public IoQueue {
 public:
  explicit ManualIoQueue(std::shared_ptr<ManualIo> io) : io_(std::move(io)) {}
  ~ManualIoQueue() override {
    io_->transfers_.Close();
    io_->RunAll();
  }

  IoTicket Submit(IoRequest request) override {
    return io_->transfers_.Add(std::move(request));
  }
  bool Raise(IoTicket ticket, IoPriority priority) override {
    return io_->transfers_.Raise(ticket, priority);
  }
  bool Cancel(IoTicket ticket) override {
    return io_->transfers_.Cancel(ticket);
  }
  std::string_view name() const override { return "manual"; }

 private:
  const std::shared_ptr<ManualIo> io_;
};

inline std::unique_ptr<IoQueue> MakeManualIoQueue(
    std::shared_ptr<ManualIo> io) {
  return std::make_unique<ManualIoQueue>(std::move(io));
}

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FAKES_MANUAL_IO_QUEUE_H_
