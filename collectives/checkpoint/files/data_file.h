// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_FILES_DATA_FILE_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_FILES_DATA_FILE_H_

// Part of the digest of tensors (tensor_digest.h).
//
// A file of a checkpoint, read and written at offsets. Several processes may
// write disjoint ranges of one file. Owns its descriptor; move-only.
// Thread-compatible. Every failure names the file and what to do.

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "chunk/base/status.h"

namespace castor {

// The system calls on data that can go wrong in more ways than a test can
// provoke: the kernel's own by default. Value; callable from several threads.
struct DataFileCalls {
  std::function<ssize_t(int, void*, size_t, off_t)> pread = ::pread;
  std::function<ssize_t(int, const void*, size_t, off_t)> pwrite = ::pwrite;
  std::function<int(int)> fsync = ::fsync;  // of files and of folders
};

// Replaces the calls of every file of a checkpoint in this process while it
// lives. For tests. REQUIRES: one at a time, and no file is read, written or
// put on the drive while it comes or goes.
class ScopedDataFileCalls {
 public:
  explicit ScopedDataFileCalls(DataFileCalls calls);
  ScopedDataFileCalls(const ScopedDataFileCalls&) = delete;
  ScopedDataFileCalls& operator=(const ScopedDataFileCalls&) = delete;
  ~ScopedDataFileCalls();

 private:
  const DataFileCalls calls_;
};

class DataFile {
 public:
  // Makes a file that is not there yet and gives it `bytes` of the file system,
  // so that a disk too full is known before anything is computed. IoError.
  static Result<DataFile> Create(const std::string& path, uint64_t bytes);
  // Malformed where nothing is there or it is no regular file.
  static Result<DataFile> OpenToRead(const std::string& path);
  // Of a file that somebody made, perhaps another process. IoError.
  static Result<DataFile> OpenToWrite(const std::string& path);

  DataFile(DataFile&& other) noexcept;
  DataFile& operator=(DataFile&& other) noexcept;
  ~DataFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // when it was opened

  // Malformed where the file ends before.
  Status ReadAt(uint64_t offset, void* to, uint64_t bytes) const;
  Status WriteAt(uint64_t offset, const void* from, uint64_t bytes);
  // What was written is on the drive. IoError.
  Status Sync();

 private:
  DataFile(std::string path, int fd, uint64_t size);

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// All bytes of a file of at most `limit` bytes. Malformed where it has more.
Result<std::string> ReadWholeFile(const std::string& path, uint64_t limit);

// Makes a new file of these bytes and puts it on the drive.
Status WriteNewFile(const std::string& path, std::string_view bytes);

// The names in a folder are on the drive. IoError; a file system that cannot
// say so is taken to be right.
Status SyncFolder(const std::string& path);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_FILES_DATA_FILE_H_
