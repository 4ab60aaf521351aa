// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_NVME_STORE_H_
#define CASTOR_OFFLOAD_NVME_NVME_STORE_H_

// The bytes of the NVMe tier: one preallocated file in a run directory of its
// own, read and written with O_DIRECT where the file system takes it. Every
// write remembers a checksum of its extent, every read verifies it. Owns the
// file, the directory and the queue. Queueing: owner thread; completions come
// from the queue's threads.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
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
  // Extents are of this size or smaller, and start at multiples of it: the
  // checksum table is by extent.
  Bytes extent = KiB(4);
  IoQueueOptions queue;
  Log* log = nullptr;
  // Tests put a queue that misbehaves here.
  std::unique_ptr<IoQueue> queue_for_test;
};

struct NvmeStoreStats {
  Bytes bytes_read;
  Bytes bytes_written;
  int64_t reads = 0;
  int64_t writes = 0;
  bool direct = false;  // O_DIRECT in force
  std::string queue;    // "io_uring" or "threads"
};

class NvmeStore {
 public:
  // Preallocates the file. Unavailable with the free space and the need where
  // the disk is full; nothing is left behind.
  static Result<std::unique_ptr<NvmeStore>> Create(NvmeStoreOptions options);
  // Waits for what is in flight, then removes the file and directory.
  ~NvmeStore();

  // Starts a transfer after `after` is done (not before; a failure of `after`
  // fails the transfer). The event fires when all bytes are there, naming
  // `what`, file and offset in a failure: IoError, or DataLoss where the
  // checksum does not match what was written. Reading an extent never written
  // is DataLoss. Offsets and sizes are multiples of 4 KiB, memory is 4 KiB
  // aligned and stays valid until done. Transfers of overlapping extents are
  // the caller's to order. Neither call blocks.
  Event Write(Bytes offset, std::span<const std::byte> data, const Event& after,
              std::string what);
  Event Read(Bytes offset, std::span<std::byte> data, const Event& after,
             std::string what);

  NvmeStoreStats stats() const;
  const std::filesystem::path& file() const;
  // Waits for what is in flight, removes the files, reports what failed. Later
  // transfers fail.
  Status Close();

 private:
  struct Impl;
  explicit NvmeStore(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// What a person should know before giving a directory to the NVMe tier.
struct FileSystemFacts {
  std::string type;  // "ext4", "tmpfs", "overlay", ...
  Bytes free;
  bool in_memory = false;  // tmpfs, ramfs: bytes there are host memory
  bool overlay = false;    // slow and often small
};
Result<FileSystemFacts> DescribeFileSystem(const std::filesystem::path& path);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_NVME_STORE_H_
