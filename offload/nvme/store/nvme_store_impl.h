// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_STORE_NVME_STORE_IMPL_H_
#define CASTOR_OFFLOAD_NVME_STORE_NVME_STORE_IMPL_H_

// The inside of an NvmeStore, for its source files alone. Part of the store
// (nvme_store.h).

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "offload/lanes/executor.h"
#include "offload/nvme/store/extent_table.h"
#include "offload/nvme/store/nvme_store.h"
#include "offload/nvme/store/stripe_map.h"

namespace castor {

// Lives as long as a transfer still waits for its `after`; the threads end in
// Close. Checksums of a write are computed by workers of their own while the
// drives work, so that no caller waits for them. Those of a read are computed
// as its pieces come, by the thread of the drive's queue: handing each piece to
// another thread costs the processor more than its checksum does.
struct NvmeStore::Impl : std::enable_shared_from_this<Impl> {
  struct Piece {
    Bytes offset;  // in the store
    Bytes size;
    StripePlace place;
  };
  enum class Phase { kWaiting, kStarted, kOver };

  struct Transfer {
    IoDirection direction;
    Bytes offset;
    std::byte* data;
    Bytes size;
    EventSource source;
    std::string what;
    std::vector<Piece> pieces;  // once started
    // Of a read: its pieces. Of a write: each piece and its checksum.
    std::atomic<size_t> parts_left = 0;

    std::mutex mutex;
    // All guarded by mutex.
    Phase phase = Phase::kWaiting;
    IoPriority priority;
    bool cancelled = false;         // while it waited
    std::vector<IoTicket> tickets;  // by piece, once started
    Status status;                  // the first failure

    std::span<std::byte> bytes(const Piece& piece) const {
      return {data + (piece.offset - offset).count(),
              static_cast<size_t>(piece.size.count())};
    }
  };
  using TransferPtr = std::shared_ptr<Transfer>;

  Impl(const NvmeStoreOptions& options,
       std::vector<std::unique_ptr<NvmeDrive>> made);

  Event Queue(IoDirection direction, Bytes offset, std::byte* data, size_t size,
              const Event& after, std::string what, IoPriority priority,
              NvmeTicket* ticket);
  Status CheckRange(const std::byte* data, Bytes offset, size_t size) const;
  void Raise(Transfer& transfer, IoPriority priority);
  bool Cancel(const TransferPtr& transfer);

  bool Enter();  // false once closed
  void Leave();
  // `after` is done, with `status`.
  void StartOrFail(const TransferPtr& transfer, const Status& status);
  // Why it cannot start, else it holds its range. REQUIRES: transfer.mutex.
  Status Claim(Transfer& transfer);
  bool IsOnePiece(const Transfer& transfer) const;
  // REQUIRES: transfer.mutex, and the range is claimed.
  void CutIntoPieces(Transfer& transfer) const;
  void Start(const TransferPtr& transfer);
  void Submit(const TransferPtr& transfer, size_t piece);
  void Moved(const TransferPtr& transfer, size_t piece, const Status& status);
  void VerifyPiece(const TransferPtr& transfer, size_t piece);
  void NoteFailure(Transfer& transfer, const Status& status);
  void EndPart(const TransferPtr& transfer);
  void End(Transfer& transfer);
  // Without a claim: it never started.
  void Refuse(Transfer& transfer, const Status& status);

  std::string Describe(const Transfer& transfer) const;
  Status Close();

  const std::vector<std::unique_ptr<NvmeDrive>> drives;
  const StripeMap map;
  Log* const log;
  ExtentTable extents;
  // Null where an executor was given. Destroyed by Close once nobody is between
  // Enter and Leave.
  std::unique_ptr<ThreadPool> write_threads;
  // Used between Enter and Leave.
  Executor* const write_checksums;
  Executor* const read_checksums;  // null: the queue's thread
  const bool dry;
  const Bytes joined;  // NvmeStoreOptions

  mutable std::mutex mutex;
  std::condition_variable idle;
  NvmeStoreStats stats;  // guarded by mutex
  int64_t in_use = 0;    // guarded by mutex; users of queues and checksums
  bool closed = false;   // guarded by mutex
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_STORE_NVME_STORE_IMPL_H_
