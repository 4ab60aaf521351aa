// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What becomes of a transfer: it waits for its event, claims its range, goes to
// the drives piece by piece, and ends when every piece is moved and every
// checksum is made or compared.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "offload/nvme/store/backing_file.h"
#include "offload/nvme/store/checksum.h"
#include "offload/nvme/store/nvme_store_impl.h"

namespace castor {

Status NvmeStore::Impl::CheckRange(const std::byte* data, Bytes offset,
                                   size_t bytes) const {
  const uint64_t block = static_cast<uint64_t>(kDirectAlignment.count());
  const uint64_t end = static_cast<uint64_t>(map.size().count());
  const uint64_t start = static_cast<uint64_t>(offset.count());
  if (bytes == 0 || start > end || bytes > end - start) {
    return InvalidArgument(
        fmt::format("{} B at offset {} are not a part of the store's {} B",
                    bytes, offset.count(), end));
  }
  if (start % block != 0 || bytes % block != 0 ||
      reinterpret_cast<uintptr_t>(data) % block != 0) {
    return InvalidArgument(fmt::format(
        "offset {}, size {} and the address of the memory must be multiples of "
        "{} B",
        offset.count(), bytes, block));
  }
  return OkStatus();
}

Event NvmeStore::Impl::Queue(IoDirection direction, Bytes offset,
                             std::byte* data, size_t bytes, const Event& after,
                             std::string what, IoPriority priority,
                             NvmeTicket* ticket) {
  if (ticket != nullptr) *ticket = NvmeTicket();
  const Status range = CheckRange(data, offset, bytes);
  if (!range.ok()) return Event::Failed(range.WithContext(what));
  auto transfer = std::make_shared<Transfer>();
  transfer->direction = direction;
  transfer->offset = offset;
  transfer->data = data;
  transfer->size = Bytes(static_cast<int64_t>(bytes));
  transfer->what = std::move(what);
  transfer->priority = priority;
  if (ticket != nullptr) *ticket = NvmeTicket(transfer);
  if (direction == IoDirection::kWrite) {
    std::lock_guard lock(mutex);
    if (stats.step >= 0) {
      stats.written_this_step += transfer->size;
      stats.most_written_in_a_step =
          std::max(stats.most_written_in_a_step, stats.written_this_step);
    }
  }
  Event event = transfer->source.event();
  after.OnDone([self = shared_from_this(), transfer](const Status& status) {
    self->StartOrFail(transfer, status);
  });
  return event;
}

void NvmeStore::Impl::StartOrFail(const TransferPtr& transfer,
                                  const Status& status) {
  if (!status.ok()) {
    Refuse(*transfer, status.WithContext(transfer->what));
  } else if (!Enter()) {
    Refuse(*transfer, FailedPrecondition(fmt::format(
                          "{}: the store was closed before it could start",
                          Describe(*transfer))));
  } else {
    Start(transfer);
    Leave();
  }
}

bool NvmeStore::Impl::Enter() {
  std::lock_guard lock(mutex);
  if (closed) return false;
  ++in_use;
  return true;
}

void NvmeStore::Impl::Leave() {
  std::lock_guard lock(mutex);
  if (--in_use == 0) idle.notify_all();
}

void NvmeStore::Impl::Refuse(Transfer& transfer, const Status& status) {
  {
    std::lock_guard lock(transfer.mutex);
    transfer.phase = Phase::kOver;
  }
  transfer.source.Complete(status);
}

// Whether a transfer without bytes goes to its drive in one piece, whatever was
// written there before.
bool NvmeStore::Impl::IsOnePiece(const Transfer& transfer) const {
  return dry && drives.size() == 1 && transfer.size <= joined;
}

Status NvmeStore::Impl::Claim(Transfer& transfer) {
  const bool read = transfer.direction == IoDirection::kRead;
  if (transfer.cancelled) return Aborted("cancelled before it started");
  if (IsOnePiece(transfer)) {
    transfer.pieces.push_back(
        {transfer.offset, transfer.size, map.Place(transfer.offset)});
  } else {
    Status begun = read ? extents.BeginRead(transfer.offset, transfer.size)
                        : extents.BeginWrite(transfer.offset, transfer.size);
    if (dry && begun.code() == ErrorCode::kDataLoss) {
      CASTOR_RETURN_IF_ERROR(
          extents.BeginWrite(transfer.offset, transfer.size));
      extents.EndWrite(transfer.offset, /*written=*/true);
      begun = extents.BeginRead(transfer.offset, transfer.size);
    }
    CASTOR_RETURN_IF_ERROR(begun);
    CutIntoPieces(transfer);
  }
  transfer.parts_left = transfer.pieces.size() * (read ? 1 : 2);
  return OkStatus();
}

void NvmeStore::Impl::CutIntoPieces(Transfer& transfer) const {
  for (const ExtentPiece& piece :
       extents.Pieces(transfer.offset, transfer.size)) {
    const StripePlace place = map.Place(piece.offset);
    const auto last = std::find_if(
        transfer.pieces.rbegin(), transfer.pieces.rend(),
        [&](const Piece& other) { return other.place.drive == place.drive; });
    if (last != transfer.pieces.rend() && last->size + piece.size <= joined) {
      last->size += piece.size;
    } else {
      transfer.pieces.push_back({piece.offset, piece.size, place});
    }
  }
}

// REQUIRES: within Enter and Leave. Not the transfer's own: it may end while
// Submit has not yet returned.
void NvmeStore::Impl::Start(const TransferPtr& transfer) {
  Status claimed;
  {
    // The lock is held until all pieces have gone out, so that Raise and Cancel
    // find all pieces or none. The queues never call back before they return.
    std::lock_guard lock(transfer->mutex);
    claimed = Claim(*transfer);
    if (claimed.ok()) {
      {
        std::lock_guard store_lock(mutex);
        ++in_use;  // until End
      }
      transfer->phase = Phase::kStarted;
      transfer->tickets.reserve(transfer->pieces.size());
      for (size_t i = 0; i < transfer->pieces.size(); ++i) Submit(transfer, i);
    }
  }
  if (!claimed.ok()) {
    if (claimed.code() == ErrorCode::kAborted) {
      std::lock_guard lock(mutex);
      ++stats.cancelled;
    }
    Refuse(*transfer, claimed.WithContext(Describe(*transfer)));
    return;
  }
  if (transfer->direction == IoDirection::kRead) return;
  for (size_t i = 0; i < transfer->pieces.size(); ++i) {
    write_checksums->Post([this, self = shared_from_this(), transfer, i] {
      const Piece& piece = transfer->pieces[i];
      if (!dry) {
        extents.SetChecksum(piece.offset, Checksum(transfer->bytes(piece)));
      }
      EndPart(transfer);
    });
  }
}

// REQUIRES: transfer->mutex.
void NvmeStore::Impl::Submit(const TransferPtr& transfer, size_t piece) {
  const Piece& part = transfer->pieces[piece];
  NvmeDrive& drive = *drives[part.place.drive];
  transfer->tickets.push_back(drive.queue().Submit(
      {.direction = transfer->direction,
       .priority = transfer->priority,
       .fd = drive.fd(),
       .offset = part.place.offset,
       .data = transfer->bytes(part).data(),
       .size = part.size,
       .done = [this, self = shared_from_this(), transfer, piece](
                   const Status& status) { Moved(transfer, piece, status); }}));
}

void NvmeStore::Impl::Moved(const TransferPtr& transfer, size_t piece,
                            const Status& status) {
  const bool read = transfer->direction == IoDirection::kRead;
  const Piece& part = transfer->pieces[piece];
  if (!status.ok()) {
    NoteFailure(
        *transfer,
        drives.size() == 1
            ? status
            : status.WithContext(drives[part.place.drive]->file().string()));
  } else {
    std::lock_guard lock(mutex);
    NvmeDriveStats& drive = stats.drives[part.place.drive];
    (read ? drive.bytes_read : drive.bytes_written) += part.size;
  }
  if (!read || !status.ok()) {
    EndPart(transfer);
    return;
  }
  if (read_checksums == nullptr) {
    VerifyPiece(transfer, piece);
    return;
  }
  read_checksums->Post([this, self = shared_from_this(), transfer, piece] {
    VerifyPiece(transfer, piece);
  });
}

void NvmeStore::Impl::VerifyPiece(const TransferPtr& transfer, size_t piece) {
  const Piece& part = transfer->pieces[piece];
  const Status status =
      dry ? OkStatus() : extents.Verify(part.offset, transfer->bytes(part));
  if (!status.ok()) {
    NoteFailure(*transfer,
                drives.size() == 1
                    ? status
                    : status.WithContext(fmt::format(
                          "offset {} of {}", part.place.offset.count(),
                          drives[part.place.drive]->file().string())));
  }
  EndPart(transfer);
}

void NvmeStore::Impl::NoteFailure(Transfer& transfer, const Status& status) {
  std::lock_guard lock(transfer.mutex);
  if (transfer.status.ok()) transfer.status = status;
}

void NvmeStore::Impl::EndPart(const TransferPtr& transfer) {
  if (transfer->parts_left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  End(*transfer);
}

void NvmeStore::Impl::End(Transfer& transfer) {
  const bool read = transfer.direction == IoDirection::kRead;
  Status status;
  {
    std::lock_guard lock(transfer.mutex);
    transfer.phase = Phase::kOver;
    status = transfer.status;
  }
  if (IsOnePiece(transfer)) {
    // The table of extents does not know the transfer.
  } else if (read) {
    extents.EndRead(transfer.offset, transfer.size);
  } else {
    extents.EndWrite(transfer.offset, status.ok());
  }
  {
    std::lock_guard lock(mutex);
    if (status.ok()) {
      (read ? stats.bytes_read : stats.bytes_written) += transfer.size;
      ++(read ? stats.reads : stats.writes);
    } else if (status.code() == ErrorCode::kAborted) {
      ++stats.cancelled;
    }
  }
  transfer.source.Complete(
      status.ok() ? status : status.WithContext(Describe(transfer)));
  Leave();
}

void NvmeStore::Impl::Raise(Transfer& transfer, IoPriority priority) {
  std::vector<IoTicket> tickets;
  {
    std::lock_guard lock(transfer.mutex);
    if (transfer.priority <= priority) return;
    transfer.priority = priority;
    if (transfer.phase == Phase::kStarted) tickets = transfer.tickets;
  }
  if (tickets.empty() || !Enter()) return;
  for (size_t i = 0; i < tickets.size(); ++i) {
    drives[transfer.pieces[i].place.drive]->queue().Raise(tickets[i], priority);
  }
  Leave();
}

bool NvmeStore::Impl::Cancel(const TransferPtr& transfer) {
  if (transfer->direction == IoDirection::kWrite) return false;
  std::vector<IoTicket> tickets;
  {
    std::lock_guard lock(transfer->mutex);
    if (transfer->phase == Phase::kOver) return false;
    if (transfer->phase == Phase::kWaiting) {
      transfer->cancelled = true;
      return true;
    }
    tickets = transfer->tickets;
  }
  // Without the lock: the last piece that is dropped ends the transfer here.
  if (!Enter()) return false;
  bool dropped = false;
  for (size_t i = 0; i < tickets.size(); ++i) {
    IoQueue& queue = drives[transfer->pieces[i].place.drive]->queue();
    dropped = queue.Cancel(tickets[i]) || dropped;
  }
  Leave();
  return dropped;
}

std::string NvmeStore::Impl::Describe(const Transfer& transfer) const {
  return fmt::format(
      "{}: {} of {} B at offset {} of {}", transfer.what,
      transfer.direction == IoDirection::kRead ? "read" : "write",
      transfer.size.count(), transfer.offset.count(),
      drives.size() == 1 ? drives[0]->file().string()
                         : fmt::format("{} drives", drives.size()));
}

}  // namespace castor
