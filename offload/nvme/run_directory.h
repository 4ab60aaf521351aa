// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_RUN_DIRECTORY_H_
#define CASTOR_OFFLOAD_NVME_RUN_DIRECTORY_H_

// A directory that belongs to one run: made under a directory that jobs may
// share, locked while its run lives, removed when it ends, reclaimed by the
// next run after a crash. Two runs on one path never touch each other's files.
// Owns the directory. Move-only; thread-compatible.

#include <filesystem>
#include <string>

#include "chunk/base/log.h"
#include "chunk/base/status.h"

namespace castor {

class RunDirectory {
 public:
  // Makes `parent`/castor-run-XXXXXX and removes the directories of runs that
  // died (their lock is free), saying so. Unavailable where `parent` is
  // missing, not a directory or read-only; the message says which and what to
  // do.
  static Result<RunDirectory> Create(const std::filesystem::path& parent,
                                     Log* log);

  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&& other) noexcept;
  ~RunDirectory();  // removes it; what fails is logged

  const std::filesystem::path& path() const { return path_; }

  // Removes the directory and reports what could not be removed.
  Status Close();

 private:
  RunDirectory(std::filesystem::path path, int lock_fd, Log* log);

  std::filesystem::path path_;
  int lock_fd_ = -1;
  Log* log_ = nullptr;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_RUN_DIRECTORY_H_
