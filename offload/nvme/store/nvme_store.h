// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_STORE_NVME_STORE_H_
#define CASTOR_OFFLOAD_NVME_STORE_NVME_STORE_H_

// The bytes of the NVMe tier: one range over one or several drives, each with a
// preallocated file in a run directory of its own, read and written with
// O_DIRECT where the file system takes it. An extent (the range of one write)
// is moved in pieces of one stripe, by all drives at once; every write
// remembers a checksum of each piece, every read verifies them while others are
// still on their way. Owns files, directories and queues. Queueing, Raise and
// Cancel: owner thread; completions come from the store's threads.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"
#include "offload/nvme/nvme_option.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/nvme/store/nvme_drive.h"

namespace castor {

struct NvmeStoreOptions {
  // One at least. Of several, none is given twice, and every size is a multiple
  // of `stripe`, as DrivesFor makes them.
  std::vector<NvmeDriveOptions> drives;
  // A drive gets a stripe before the next drive's turn, and each stripe has a
  // checksum: a multiple of 4 KiB.
  Bytes stripe = kNvmeStripe;
  IoQueueOptions queue = {};  // of each drive, where `make_queue` is null
  // Where fallbacks are said once; may be null, else must outlive the store.
  Log* log = nullptr;
  // Called once per drive. Null: the best queue that this machine gives. Twins
  // come this way, and tests' queues that misbehave.
  IoQueueFactory make_queue = nullptr;
  // Computes checksums; must outlive the store. Null: threads of the store's
  // own, and those of the queues. For worlds whose time is counted, which see
  // no others.
  Executor* checksums = nullptr;
  // No drive has a file, and no transfer moves or checks a byte; what was never
  // written may be read. REQUIRES, then: queues of `make_queue` that move none.
  bool dry = false;
  // Of a dry store: stripes of a transfer that are on one drive go out
  // together, in pieces of at most so many bytes. A stripe or less: each by
  // itself.
  Bytes joined = {};
};

struct NvmeDriveStats {
  std::filesystem::path file;
  Bytes size;
  Bytes bytes_read = {};     // of pieces that were moved
  Bytes bytes_written = {};  // likewise: the wear of this drive
  bool direct = false;       // O_DIRECT in force
  Bytes registered = {};     // memory that the kernel holds ready
};

struct NvmeStoreStats {
  Bytes bytes_read;     // of transfers that succeeded
  Bytes bytes_written;  // likewise
  int64_t reads = 0;
  int64_t writes = 0;
  int64_t cancelled = 0;  // reads
  bool direct = false;    // on every drive
  std::string queue;      // its name
  // Endurance: bytes that were given to Write, by step. What was written before
  // the first BeginStep is in none.
  int64_t step = -1;             // the present one; -1: none has begun
  Bytes written_this_step;       // so far
  Bytes most_written_in_a_step;  // of all that began
  std::vector<NvmeDriveStats> drives;
};

// Names a read or write to the store that it was given to, for Raise and
// Cancel. Holds nothing of it. Value; empty when default-made.
class NvmeTicket {
 public:
  NvmeTicket() = default;

 private:
  friend class NvmeStore;
  explicit NvmeTicket(std::weak_ptr<void> transfer)
      : transfer_(std::move(transfer)) {}
  std::weak_ptr<void> transfer_;
};

class NvmeStore {
 public:
  // What each of the drives that a user gave holds of `need` bytes: as much as
  // any other, as far as their limits let it. Drives that are not needed are
  // left out; the sum may exceed `need` by less than a stripe, never a limit.
  // Infeasible, with numbers, where they do not hold it. REQUIRES: need > 0.
  static Result<std::vector<NvmeDriveOptions>> DrivesFor(
      Bytes need, std::span<const NvmeOption> given,
      Bytes stripe = kNvmeStripe);

  // Makes the files. Unavailable with the free space and the need where
  // a disk is full, or with the reason where a directory cannot be used;
  // InvalidArgument where the options have no meaning; nothing is left behind.
  static Result<std::unique_ptr<NvmeStore>> Create(NvmeStoreOptions options);
  // As Close; what fails is logged.
  ~NvmeStore();
  NvmeStore(const NvmeStore&) = delete;
  NvmeStore& operator=(const NvmeStore&) = delete;

  // Prepares memory that transfers will use, so that they cost less: the slab
  // of the host tier. Where that is refused they work as without, which is said
  // once. `memory` must outlive the store. Blocks. REQUIRES: called at most
  // once, and before the first transfer.
  void RegisterMemory(std::span<std::byte> memory);

  // Starts a transfer after `after` is done (not before; a failure of `after`
  // fails the transfer). The event fires when all bytes are there, naming
  // `what`, file and offset in a failure: IoError, or DataLoss where the
  // checksum does not match what was written. A read covers whole extents, one
  // or several neighbouring ones: part of one is InvalidArgument, one never
  // written, or partly overwritten since, is DataLoss. Offsets and sizes are
  // multiples of 4 KiB, memory is 4 KiB aligned, stays valid until done and,
  // for a write, unchanged. Transfers of overlapping ranges are the caller's to
  // order by events; one that is not fails with FailedPrecondition when it
  // starts. `ticket`, where given, names the transfer afterwards. Neither call
  // blocks.
  Event Write(Bytes offset, std::span<const std::byte> data, const Event& after,
              std::string what, IoPriority priority = IoPriority::kWriteBack,
              NvmeTicket* ticket = nullptr);
  Event Read(Bytes offset, std::span<std::byte> data, const Event& after,
             std::string what, IoPriority priority = IoPriority::kDemand,
             NvmeTicket* ticket = nullptr);

  // Makes a transfer that is not over more urgent, whether or not it has
  // started: a prefetch that somebody waits for now, a write-back whose memory
  // is needed. What has gone to the drive is not affected. No effect where it
  // is as urgent already.
  void Raise(const NvmeTicket& ticket, IoPriority priority);

  // Ends a read that is no longer wanted: what has not gone to the drive never
  // does, and when what has is back (and `after` is done) the event fails with
  // Aborted and the memory is free. True where that is so; false, without
  // effect, where all of the read has gone out or is over, and for a write,
  // whose bytes would be lost.
  bool Cancel(const NvmeTicket& ticket);

  // Space of files that come as they are written (FileSpace). Owner thread.
  bool as_written() const;  // of some drive
  bool as_written(size_t drive) const;
  // Sets what is missing aside. As Create, where that is not there. Blocks.
  Status TakeSpace();
  // Gives the space of a range back, whose contents nobody needs any more.
  // REQUIRES: no transfer with it is under way.
  void GiveSpace(Bytes offset, Bytes size);
  // Of that drive's file system; -1 where nobody knows.
  Bytes FreeSpaceOf(size_t drive) const;

  // A step of training begins: what is given to Write from now on counts to it.
  void BeginStep(int64_t step);

  NvmeStoreStats stats() const;
  Bytes size() const;  // of all drives
  const std::filesystem::path& file(size_t drive = 0) const;

  // Waits for the transfers that have started, removes files and directories,
  // and reports what could not be removed. Transfers that still wait for an
  // event fail when it is done, later ones at once. Not to be called from a
  // callback of one of the store's events.
  Status Close();

 private:
  struct Impl;
  explicit NvmeStore(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_STORE_NVME_STORE_H_
