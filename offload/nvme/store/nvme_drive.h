// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_STORE_NVME_DRIVE_H_
#define CASTOR_OFFLOAD_NVME_STORE_NVME_DRIVE_H_

// One drive of an NVMe tier: a file, preallocated as a rule, in a run directory
// of its own, and the queue of transfers with it. Owns all three. The queue is
// thread-safe; the rest is for one thread at a time.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/nvme/queue/unique_fd.h"
#include "offload/nvme/store/backing_file.h"
#include "offload/nvme/store/run_directory.h"

namespace castor {

struct NvmeDriveOptions {
  std::filesystem::path directory;  // shared parent; must exist
  Bytes size;                       // a multiple of 4 KiB
  FileSpace space = FileSpace::kAtOnce;
  bool dry = false;  // the store's: no file is made
};

class NvmeDrive {
 public:
  // Makes the file and registers it with `queue`. Unavailable with the
  // free space and the need where the disk is full, or with the reason where
  // the directory cannot be used; nothing is left behind. `log`, where
  // fallbacks are said once, may be null, else must outlive the drive.
  static Result<std::unique_ptr<NvmeDrive>> Open(
      const NvmeDriveOptions& options, std::unique_ptr<IoQueue> queue,
      Log* log);
  // As Close; what fails is logged.
  ~NvmeDrive();
  NvmeDrive(const NvmeDrive&) = delete;
  NvmeDrive& operator=(const NvmeDrive&) = delete;

  const std::filesystem::path& file() const { return file_; }
  int fd() const { return fd_.get(); }
  Bytes size() const { return size_; }
  bool direct() const { return direct_; }  // O_DIRECT in force
  // Whether its space still comes as it is written.
  bool as_written() const { return as_written_; }
  // Sets the rest of its space aside. As Open, where that is not there.
  Status TakeSpace();
  Bytes registered() const { return registered_; }

  // REQUIRES: not closed.
  IoQueue& queue() { return *queue_; }
  const IoQueue& queue() const { return *queue_; }

  // As IoQueue's; a refusal is logged once and costs only speed.
  void RegisterMemory(std::span<std::byte> memory);

  // Waits for the transfers under way, removes the file and the directory, and
  // reports what could not be removed. Later calls do nothing.
  Status Close();

 private:
  NvmeDrive(const NvmeDriveOptions& options, std::unique_ptr<IoQueue> queue,
            Log* log);
  Status MakeFile(const NvmeDriveOptions& options);

  std::optional<RunDirectory> directory_;  // none of a dry drive
  std::filesystem::path file_;
  Bytes size_;
  Log* log_ = nullptr;
  UniqueFd fd_;
  bool direct_ = false;
  bool as_written_ = false;
  Bytes registered_;
  std::unique_ptr<IoQueue> queue_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_STORE_NVME_DRIVE_H_
