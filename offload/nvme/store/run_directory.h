// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_STORE_RUN_DIRECTORY_H_
#define CASTOR_OFFLOAD_NVME_STORE_RUN_DIRECTORY_H_

// A directory that belongs to one run: made under a directory that jobs may
// share, locked while its run lives, removed when it ends, reclaimed by the
// next run after a crash. Two runs on one path, of one process or of several,
// never touch each other's files. Owns the directory and whatever is put into
// it. Move-only; thread-compatible. Part of the drive (nvme_drive.h).

#include <sys/types.h>

#include <filesystem>
#include <memory>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "offload/nvme/queue/unique_fd.h"

namespace castor {
namespace internal {
class ListedPath;
}  // namespace internal

class RunDirectory {
 public:
  // Makes `parent`/castor-run-XXXXXX and removes the directories of runs that
  // died (their lock is free), saying so. Unavailable where `parent` is
  // missing, not a directory, read-only or without locks; the message says
  // which and what to do. `log` may be null, else must outlive the directory.
  // Blocks while another run does the same under the same parent.
  static Result<RunDirectory> Create(const std::filesystem::path& parent,
                                     Log* log);

  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&& other) noexcept;
  // Removes it; what fails is logged. In a process forked from the one that
  // made it, does nothing.
  ~RunDirectory();

  // Absolute and without links, so that the process may change its directory.
  const std::filesystem::path& path() const { return path_; }

  // Removes the directory and reports what could not be removed. Later calls do
  // nothing.
  Status Close();

  // Removes every directory of this process, which must end then: threads that
  // make or close a directory block from here on, and others may still write.
  // Takes little memory. Thread-safe.
  static void RemoveAllOfThisProcess();

 private:
  RunDirectory(std::unique_ptr<internal::ListedPath> listed, UniqueFd lock,
               Log* log);
  void CloseAndLog();

  std::filesystem::path path_;
  UniqueFd lock_;  // none once closed or moved from
  std::unique_ptr<internal::ListedPath> listed_;
  pid_t owner_ = -1;
  Log* log_ = nullptr;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_STORE_RUN_DIRECTORY_H_
