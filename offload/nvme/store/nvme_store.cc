// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Making an NvmeStore, asking it, and ending it; nvme_store_transfers.cc has
// what lies between.

#include "offload/nvme/store/nvme_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "chunk/base/check.h"
#include "offload/lanes/start_thread.h"
#include "offload/nvme/queue/io_queue_factory.h"
#include "offload/nvme/store/backing_file.h"
#include "offload/nvme/store/nvme_store_impl.h"
#include "offload/nvme/store/preallocate.h"

namespace castor {
namespace {

// One thread takes the checksums of 15 to 30 GB/s, more than a drive moves.
constexpr size_t kMostChecksumThreads = 4;

Status CheckOptions(const NvmeStoreOptions& options) {
  if (options.drives.empty()) {
    return InvalidArgument("an NVMe tier needs a drive: give it a directory");
  }
  if (options.stripe <= Bytes(0) ||
      options.stripe % kDirectAlignment != Bytes(0)) {
    return InvalidArgument(
        fmt::format("the stripe of the NVMe tier, {} B, must be a positive "
                    "multiple of {} B",
                    options.stripe.count(), kDirectAlignment.count()));
  }
  std::vector<std::filesystem::path> seen;
  for (const NvmeDriveOptions& drive : options.drives) {
    if (options.drives.size() > 1 &&
        (drive.size <= Bytes(0) || drive.size % options.stripe != Bytes(0))) {
      return InvalidArgument(fmt::format(
          "of several drives, each gives a positive multiple of the stripe of "
          "{} B to the NVMe tier; {} gives {} B",
          options.stripe.count(), drive.directory.string(),
          drive.size.count()));
    }
    // One that does not exist is refused when it is used.
    std::error_code ignored;
    std::filesystem::path real =
        std::filesystem::weakly_canonical(drive.directory, ignored);
    if (std::find(seen.begin(), seen.end(), real) != seen.end()) {
      return InvalidArgument(fmt::format(
          "the directory {} is given twice to the NVMe tier: its drive would "
          "only get in its own way; give it once, with the sum of both sizes",
          drive.directory.string()));
    }
    seen.push_back(std::move(real));
  }
  return OkStatus();
}

std::vector<Bytes> SizesOf(
    const std::vector<std::unique_ptr<NvmeDrive>>& drives) {
  std::vector<Bytes> sizes;
  for (const auto& drive : drives) sizes.push_back(drive->size());
  return sizes;
}

std::unique_ptr<ThreadPool> MakeChecksumThreads(const NvmeStoreOptions& options,
                                                size_t drives) {
  if (options.checksums != nullptr) return nullptr;
  return std::make_unique<ThreadPool>(
      static_cast<int>(std::min(drives, kMostChecksumThreads)));
}

}  // namespace

NvmeStore::Impl::Impl(const NvmeStoreOptions& options,
                      std::vector<std::unique_ptr<NvmeDrive>> made)
    : drives(std::move(made)),
      map(SizesOf(drives), options.stripe),
      log(options.log),
      extents(options.stripe),
      write_threads(MakeChecksumThreads(options, drives.size())),
      write_checksums(options.checksums != nullptr ? options.checksums
                                                   : write_threads.get()),
      read_checksums(options.checksums),
      dry(options.dry),
      joined(options.joined) {
  stats.direct = true;
  for (const auto& drive : drives) {
    stats.direct = stats.direct && drive->direct();
    stats.queue = drive->queue().name();
    stats.drives.push_back({.file = drive->file(),
                            .size = drive->size(),
                            .direct = drive->direct()});
  }
}

Result<std::vector<NvmeDriveOptions>> NvmeStore::DrivesFor(
    Bytes need, std::span<const NvmeOption> given, Bytes stripe) {
  if (given.empty()) {
    return InvalidArgument(
        fmt::format("{} B are to go to NVMe, and no directory is given for "
                    "them",
                    need.count()));
  }
  std::vector<std::optional<Bytes>> limits;
  for (const NvmeOption& drive : given) limits.push_back(drive.size);
  CASTOR_ASSIGN_OR_RETURN(const std::vector<Bytes> sizes,
                          ShareOverDrives(need, limits, stripe));
  std::vector<NvmeDriveOptions> drives;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > Bytes(0)) drives.push_back({given[i].directory, sizes[i]});
  }
  return drives;
}

Result<std::unique_ptr<NvmeStore>> NvmeStore::Create(NvmeStoreOptions options) {
  CASTOR_RETURN_IF_ERROR(CheckOptions(options));
  return OrThreadLimit([&]() -> Result<std::unique_ptr<NvmeStore>> {
    std::vector<std::unique_ptr<NvmeDrive>> drives;
    for (NvmeDriveOptions& drive : options.drives) {
      drive.dry = options.dry;
      std::unique_ptr<IoQueue> queue =
          options.make_queue ? options.make_queue(drives.size())
                             : MakeIoQueue(options.queue, options.log);
      CASTOR_ASSIGN_OR_RETURN(
          std::unique_ptr<NvmeDrive> opened,
          NvmeDrive::Open(drive, std::move(queue), options.log));
      drives.push_back(std::move(opened));
    }
    return std::unique_ptr<NvmeStore>(
        new NvmeStore(std::make_shared<Impl>(options, std::move(drives))));
  });
}

NvmeStore::NvmeStore(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

NvmeStore::~NvmeStore() {
  const Status status = impl_->Close();
  if (!status.ok() && impl_->log != nullptr) {
    impl_->log->Warning(status.message());
  }
}

void NvmeStore::RegisterMemory(std::span<std::byte> memory) {
  std::lock_guard lock(impl_->mutex);
  CASTOR_CHECK(!impl_->closed);
  for (size_t i = 0; i < impl_->drives.size(); ++i) {
    impl_->drives[i]->RegisterMemory(memory);
    impl_->stats.drives[i].registered = impl_->drives[i]->registered();
  }
}

Event NvmeStore::Write(Bytes offset, std::span<const std::byte> data,
                       const Event& after, std::string what,
                       IoPriority priority, NvmeTicket* ticket) {
  // A write only reads the memory; requests of both directions share a type.
  return impl_->Queue(IoDirection::kWrite, offset,
                      const_cast<std::byte*>(data.data()), data.size(), after,
                      std::move(what), priority, ticket);
}

Event NvmeStore::Read(Bytes offset, std::span<std::byte> data,
                      const Event& after, std::string what, IoPriority priority,
                      NvmeTicket* ticket) {
  return impl_->Queue(IoDirection::kRead, offset, data.data(), data.size(),
                      after, std::move(what), priority, ticket);
}

void NvmeStore::Raise(const NvmeTicket& ticket, IoPriority priority) {
  const auto transfer =
      std::static_pointer_cast<Impl::Transfer>(ticket.transfer_.lock());
  if (transfer != nullptr) impl_->Raise(*transfer, priority);
}

bool NvmeStore::Cancel(const NvmeTicket& ticket) {
  const auto transfer =
      std::static_pointer_cast<Impl::Transfer>(ticket.transfer_.lock());
  return transfer != nullptr && impl_->Cancel(transfer);
}

void NvmeStore::BeginStep(int64_t step) {
  std::lock_guard lock(impl_->mutex);
  NvmeStoreStats& stats = impl_->stats;
  stats.written_this_step = Bytes(0);
  stats.step = step;
}

bool NvmeStore::as_written() const {
  return std::any_of(impl_->drives.begin(), impl_->drives.end(),
                     [](const auto& drive) { return drive->as_written(); });
}

bool NvmeStore::as_written(size_t drive) const {
  return impl_->drives[drive]->as_written();
}

Status NvmeStore::TakeSpace() {
  for (const auto& drive : impl_->drives) {
    CASTOR_RETURN_IF_ERROR(drive->TakeSpace());
  }
  return OkStatus();
}

void NvmeStore::GiveSpace(Bytes offset, Bytes size) {
  const Bytes end = offset + size;
  while (offset < end) {
    const Bytes next = RoundUp(offset + Bytes(1), impl_->map.unit());
    const Bytes part = std::min(next, end) - offset;
    const StripePlace place = impl_->map.Place(offset);
    // It was tried when the file that needs the space was made.
    castor::GiveSpace(impl_->drives[place.drive]->fd(), place.offset, part);
    offset += part;
  }
}

Bytes NvmeStore::FreeSpaceOf(size_t drive) const {
  return FreeSpace(impl_->drives[drive]->fd());
}

NvmeStoreStats NvmeStore::stats() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

Bytes NvmeStore::size() const { return impl_->map.size(); }

const std::filesystem::path& NvmeStore::file(size_t drive) const {
  CASTOR_CHECK_LT(drive, impl_->drives.size());
  return impl_->drives[drive]->file();
}

Status NvmeStore::Close() { return impl_->Close(); }

Status NvmeStore::Impl::Close() {
  {
    std::unique_lock lock(mutex);
    if (std::exchange(closed, true)) return OkStatus();
    idle.wait(lock, [this] { return in_use == 0; });
  }
  // The queues' threads may still be on the way out of the last completion, and
  // from there on the way to a checksum's worker.
  Status status;
  for (const auto& drive : drives) {
    const Status closed_drive = drive->Close();
    if (status.ok()) status = closed_drive;
  }
  write_threads.reset();
  return status;
}

}  // namespace castor
