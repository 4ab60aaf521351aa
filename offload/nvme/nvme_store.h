// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_NVME_STORE_H_
#define CASTOR_OFFLOAD_NVME_NVME_STORE_H_

// The bytes of the NVMe tier: one preallocated file in a run directory of its
// own, read and written with O_DIRECT where the file system takes it. Every
// write remembers a checksum of its extent (the range of that write), every
// read verifies it. Owns the file, the directory and the queue. Queueing: owner
// thread; completions come from the store's threads.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/event.h"
#include "offload/nvme/io_queue.h"

namespace castor {

struct NvmeStoreOptions {
  std::filesystem::path directory;  // shared parent; must exist
  Bytes size;                       // preallocated; a multiple of 4 KiB
  IoQueueOptions queue = {};
  // Where fallbacks are said once; may be null, else must outlive the store.
  Log* log = nullptr;
  // Tests put a queue that misbehaves here.
  std::unique_ptr<IoQueue> queue_for_test = nullptr;
};

struct NvmeStoreStats {
  Bytes bytes_read;     // of transfers that succeeded
  Bytes bytes_written;  // likewise
  int64_t reads = 0;
  int64_t writes = 0;
  bool direct = false;  // O_DIRECT in force
  std::string queue;    // "io_uring" or "threads"
};

class NvmeStore {
 public:
  // Preallocates the file. Unavailable with the free space and the need where
  // the disk is full, or with the reason where the directory cannot be used;
  // nothing is left behind.
  static Result<std::unique_ptr<NvmeStore>> Create(NvmeStoreOptions options);
  // As Close; what fails is logged.
  ~NvmeStore();
  NvmeStore(const NvmeStore&) = delete;
  NvmeStore& operator=(const NvmeStore&) = delete;

  // Starts a transfer after `after` is done (not before; a failure of `after`
  // fails the transfer). The event fires when all bytes are there, naming
  // `what`, file and offset in a failure: IoError, or DataLoss where the
  // checksum does not match what was written. A read covers whole extents, one
  // or several neighbouring ones: part of one is InvalidArgument, one never
  // written, or partly overwritten since, is DataLoss. Offsets and sizes are
  // multiples of 4 KiB, memory is 4 KiB aligned, stays valid until done and,
  // for a write, unchanged. Transfers of overlapping ranges are the caller's to
  // order by events; one that is not fails with FailedPrecondition when it
  // starts. Neither call blocks.
  Event Write(Bytes offset, std::span<const std::byte> data, const Event& after,
              std::string what);
  Event Read(Bytes offset, std::span<std::byte> data, const Event& after,
             std::string what);

  NvmeStoreStats stats() const;
  const std::filesystem::path& file() const;
  // Waits for the transfers that have started, removes the file and the
  // directory, and reports what could not be removed. Transfers that still wait
  // for an event fail when it is done, later ones at once. Not to be called
  // from a callback of one of the store's events.
  Status Close();

 private:
  struct Impl;
  explicit NvmeStore(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_NVME_STORE_H_
