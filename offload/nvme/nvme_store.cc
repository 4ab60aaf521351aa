// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/nvme_store.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "offload/executor.h"
#include "offload/nvme/backing_file.h"
#include "offload/nvme/extent_table.h"
#include "offload/nvme/io_queue_factory.h"
#include "offload/nvme/run_directory.h"
#include "offload/nvme/unique_fd.h"

namespace castor {

// Lives as long as a transfer still waits for its `after`; the threads end in
// Close. Checksums are computed by workers of their own, so that neither a
// caller nor the queue waits for them: that of a write while the drive works,
// that of a read when its last byte is there, and by another worker, because
// somebody may be waiting for it.
struct NvmeStore::Impl : std::enable_shared_from_this<Impl> {
  struct Transfer {
    IoDirection direction;
    Bytes offset;
    std::byte* data;
    Bytes size;
    EventSource source;
    std::string what;
    // Of a write: the drive's part and the checksum's.
    std::atomic<int> parts_left = 2;
    Status moved;
    uint64_t checksum = 0;

    std::span<const std::byte> bytes() const {
      return {data, static_cast<size_t>(size.count())};
    }
  };
  using TransferPtr = std::shared_ptr<Transfer>;

  explicit Impl(RunDirectory made) : directory(std::move(made)) {}

  Status Open(NvmeStoreOptions& options);
  Event Queue(IoDirection direction, Bytes offset, std::byte* data, size_t size,
              const Event& after, std::string what);
  Status CheckRange(const std::byte* data, Bytes offset, size_t size) const;
  bool Enter();  // false once closed
  void Leave();
  void Start(const TransferPtr& transfer);
  void Moved(const TransferPtr& transfer, const Status& status);
  void EndPartOfWrite(const TransferPtr& transfer);
  void VerifyRead(const TransferPtr& transfer);
  void End(const Transfer& transfer, const Status& status);
  std::string Describe(const Transfer& transfer) const;
  Status Close();

  RunDirectory directory;
  std::filesystem::path file;
  Bytes size;
  Log* log = nullptr;
  UniqueFd fd;
  ExtentTable extents;
  // Used between Enter and Leave, destroyed by Close once nobody is there.
  std::unique_ptr<ThreadPool> write_checksums;
  std::unique_ptr<ThreadPool> read_checksums;
  std::unique_ptr<IoQueue> queue;

  mutable std::mutex mutex;
  std::condition_variable idle;
  NvmeStoreStats stats;  // guarded by mutex
  int64_t in_use = 0;    // guarded by mutex; users of queue and checksums
  bool closed = false;   // guarded by mutex
};

Status NvmeStore::Impl::Open(NvmeStoreOptions& options) {
  size = options.size;
  log = options.log;
  file = directory.path() / "nvme.data";
  CASTOR_ASSIGN_OR_RETURN(BackingFile backing,
                          MakeBackingFile(file, size, log));
  fd = std::move(backing.fd);
  stats.direct = backing.direct;
  queue = options.queue_for_test ? std::move(options.queue_for_test)
                                 : MakeIoQueue(options.queue, log);
  stats.queue = queue->name();
  write_checksums = std::make_unique<ThreadPool>(1);
  read_checksums = std::make_unique<ThreadPool>(1);
  return OkStatus();
}

Status NvmeStore::Impl::CheckRange(const std::byte* data, Bytes offset,
                                   size_t bytes) const {
  const uint64_t block = static_cast<uint64_t>(kDirectAlignment.count());
  const uint64_t end = static_cast<uint64_t>(size.count());
  const uint64_t start = static_cast<uint64_t>(offset.count());
  if (bytes == 0 || start > end || bytes > end - start) {
    return InvalidArgument(
        fmt::format("{} B at offset {} are not a part of the store's {} B",
                    bytes, offset.count(), size.count()));
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
                             std::string what) {
  const Status range = CheckRange(data, offset, bytes);
  if (!range.ok()) return Event::Failed(range.WithContext(what));
  auto transfer = std::make_shared<Transfer>();
  transfer->direction = direction;
  transfer->offset = offset;
  transfer->data = data;
  transfer->size = Bytes(static_cast<int64_t>(bytes));
  transfer->what = std::move(what);
  Event event = transfer->source.event();
  after.OnDone([self = shared_from_this(), transfer](const Status& status) {
    if (!status.ok()) {
      transfer->source.Complete(status.WithContext(transfer->what));
    } else if (!self->Enter()) {
      transfer->source.Complete(FailedPrecondition(
          fmt::format("{}: the store was closed before it could start",
                      self->Describe(*transfer))));
    } else {
      self->Start(transfer);
      self->Leave();
    }
  });
  return event;
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

// REQUIRES: within Enter and Leave. Not the transfer's own: it may end while
// Submit has not yet returned.
void NvmeStore::Impl::Start(const TransferPtr& transfer) {
  const bool read = transfer->direction == IoDirection::kRead;
  const Status claim =
      read ? extents.BeginRead(transfer->offset, transfer->size)
           : extents.BeginWrite(transfer->offset, transfer->size);
  if (!claim.ok()) {
    transfer->source.Complete(claim.WithContext(Describe(*transfer)));
    return;
  }
  {
    std::lock_guard lock(mutex);
    ++in_use;  // until End
  }
  queue->Submit(
      {.direction = transfer->direction,
       .fd = fd.get(),
       .offset = transfer->offset,
       .data = transfer->data,
       .size = transfer->size,
       .done = [this, self = shared_from_this(),
                transfer](const Status& status) { Moved(transfer, status); }});
  if (read) return;
  write_checksums->Post([this, self = shared_from_this(), transfer] {
    transfer->checksum = Checksum(transfer->bytes());
    EndPartOfWrite(transfer);
  });
}

void NvmeStore::Impl::Moved(const TransferPtr& transfer, const Status& status) {
  if (transfer->direction == IoDirection::kWrite) {
    transfer->moved = status;
    EndPartOfWrite(transfer);
  } else if (status.ok()) {
    read_checksums->Post(
        [this, self = shared_from_this(), transfer] { VerifyRead(transfer); });
  } else {
    extents.EndRead(transfer->offset, transfer->size);
    End(*transfer, status);
  }
}

void NvmeStore::Impl::EndPartOfWrite(const TransferPtr& transfer) {
  if (transfer->parts_left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  extents.EndWrite(transfer->offset, transfer->moved.ok()
                                         ? std::optional(transfer->checksum)
                                         : std::nullopt);
  End(*transfer, transfer->moved);
}

void NvmeStore::Impl::VerifyRead(const TransferPtr& transfer) {
  const Status status = extents.Verify(transfer->offset, transfer->bytes());
  extents.EndRead(transfer->offset, transfer->size);
  End(*transfer, status);
}

void NvmeStore::Impl::End(const Transfer& transfer, const Status& status) {
  if (status.ok()) {
    std::lock_guard lock(mutex);
    const bool read = transfer.direction == IoDirection::kRead;
    (read ? stats.bytes_read : stats.bytes_written) += transfer.size;
    ++(read ? stats.reads : stats.writes);
  }
  transfer.source.Complete(
      status.ok() ? status : status.WithContext(Describe(transfer)));
  Leave();
}

std::string NvmeStore::Impl::Describe(const Transfer& transfer) const {
  return fmt::format(
      "{}: {} of {} B at offset {} of {}", transfer.what,
      transfer.direction == IoDirection::kRead ? "read" : "write",
      transfer.size.count(), transfer.offset.count(), file.string());
}

Status NvmeStore::Impl::Close() {
  {
    std::unique_lock lock(mutex);
    if (std::exchange(closed, true)) return OkStatus();
    idle.wait(lock, [this] { return in_use == 0; });
  }
  // Their threads may still be on the way out of the last completion.
  queue.reset();
  write_checksums.reset();
  read_checksums.reset();
  Status status;
  if (const int error = fd.Close(); error != 0) {
    status =
        IoError(fmt::format("closing {} failed: {} (errno {})", file.string(),
                            std::generic_category().message(error), error));
  }
  const Status removed = directory.Close();
  return status.ok() ? removed : status;
}

Result<std::unique_ptr<NvmeStore>> NvmeStore::Create(NvmeStoreOptions options) {
  if (options.size <= Bytes(0) || options.size % kDirectAlignment != Bytes(0)) {
    return InvalidArgument(
        fmt::format("the size of the NVMe tier, {} B, must be a positive "
                    "multiple of {} B",
                    options.size.count(), kDirectAlignment.count()));
  }
  CASTOR_ASSIGN_OR_RETURN(RunDirectory directory,
                          RunDirectory::Create(options.directory, options.log));
  auto impl = std::make_shared<Impl>(std::move(directory));
  CASTOR_RETURN_IF_ERROR(impl->Open(options));
  return std::unique_ptr<NvmeStore>(new NvmeStore(std::move(impl)));
}

NvmeStore::NvmeStore(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

NvmeStore::~NvmeStore() {
  const Status status = impl_->Close();
  if (!status.ok() && impl_->log != nullptr) {
    impl_->log->Warning(status.message());
  }
}

Event NvmeStore::Write(Bytes offset, std::span<const std::byte> data,
                       const Event& after, std::string what) {
  // A write only reads the memory; requests of both directions share a type.
  return impl_->Queue(IoDirection::kWrite, offset,
                      const_cast<std::byte*>(data.data()), data.size(), after,
                      std::move(what));
}

Event NvmeStore::Read(Bytes offset, std::span<std::byte> data,
                      const Event& after, std::string what) {
  return impl_->Queue(IoDirection::kRead, offset, data.data(), data.size(),
                      after, std::move(what));
}

NvmeStoreStats NvmeStore::stats() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

const std::filesystem::path& NvmeStore::file() const { return impl_->file; }

Status NvmeStore::Close() { return impl_->Close(); }

}  // namespace castor
