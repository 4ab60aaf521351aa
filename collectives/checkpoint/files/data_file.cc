// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/files/data_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <utility>

#include "chunk/base/units.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"

namespace castor {
namespace {

// More than the kernel moves in one call.
constexpr uint64_t kMostAtOnce = uint64_t{1} << 30;

Status Refused(const std::string& path, std::string_view what, int error) {
  const char* remedy = "check the drive and the permissions";
  if (error == ENOSPC || error == EDQUOT) {
    remedy = "free some space there, or name a folder on another drive";
  }
  return IoError(fmt::format("{} could not be {}: {}; {}", QuotedPath(path),
                             what, std::strerror(error), remedy));
}

// Null: the kernel's own.
std::atomic<const DataFileCalls*> replaced = nullptr;

// `kernel`, or what stands for it.
template <typename Call, typename... Args>
auto Do(std::function<Call> DataFileCalls::*call, Call* kernel, Args... args) {
  const DataFileCalls* const calls = replaced.load(std::memory_order_acquire);
  return calls == nullptr ? kernel(args...) : (calls->*call)(args...);
}

}  // namespace

ScopedDataFileCalls::ScopedDataFileCalls(DataFileCalls calls)
    : calls_(std::move(calls)) {
  replaced.store(&calls_, std::memory_order_release);
}

ScopedDataFileCalls::~ScopedDataFileCalls() {
  replaced.store(nullptr, std::memory_order_release);
}

Result<DataFile> DataFile::Create(const std::string& path, uint64_t bytes) {
  const int fd =
      open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return Refused(path, "made", errno);
  DataFile file(path, fd, bytes);
  const off_t size = static_cast<off_t>(bytes);
  int made = 0;
  do {
    made = bytes == 0 ? 0 : fallocate(fd, 0, 0, size);
  } while (made != 0 && errno == EINTR);
  if (made != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
    made = ftruncate(fd, size);
  }
  if (made != 0) {
    return Refused(path,
                   fmt::format("given its {}",
                               FormatBytes(Bytes(static_cast<int64_t>(bytes)))),
                   errno);
  }
  return file;
}

Result<DataFile> DataFile::OpenToRead(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno != ENOENT && errno != ENOTDIR) {
      return Refused(path, "opened", errno);
    }
    return Malformed(fmt::format(
        "{} is missing; copy the checkpoint again, or use an older one",
        QuotedPath(path)));
  }
  DataFile file(path, fd, 0);
  struct stat info = {};
  if (fstat(fd, &info) != 0) return Refused(path, "described", errno);
  if (!S_ISREG(info.st_mode)) {
    return Malformed(
        fmt::format("{} is no regular file; copy the checkpoint "
                    "again, or use an older one",
                    QuotedPath(path)));
  }
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

Result<DataFile> DataFile::OpenToWrite(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) {
    return IoError(fmt::format(
        "{} is not here, though rank 0 made it: ranks save to one folder, "
        "which all of them see; name one on a shared file system",
        QuotedPath(path)));
  }
  if (fd < 0) return Refused(path, "opened", errno);
  return DataFile(path, fd, 0);
}

DataFile::DataFile(std::string path, int fd, uint64_t size)
    : path_(std::move(path)), fd_(fd), size_(size) {}

DataFile::DataFile(DataFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_) {}

DataFile& DataFile::operator=(DataFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

DataFile::~DataFile() {
  if (fd_ >= 0) close(fd_);
}

Status DataFile::ReadAt(uint64_t offset, void* to, uint64_t bytes) const {
  std::byte* out = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t count =
        Do(&DataFileCalls::pread, ::pread, fd_, static_cast<void*>(out),
           std::min(bytes, kMostAtOnce), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Refused(path_, "read", errno);
    if (count == 0) {
      return Malformed(fmt::format(
          "{} ends at byte {}, {} bytes too soon; copy the checkpoint again, "
          "or use an older one",
          QuotedPath(path_), offset, bytes));
    }
    out += count;
    offset += static_cast<uint64_t>(count);
    bytes -= static_cast<uint64_t>(count);
  }
  return OkStatus();
}

Status DataFile::WriteAt(uint64_t offset, const void* from, uint64_t bytes) {
  const std::byte* in = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const ssize_t count =
        Do(&DataFileCalls::pwrite, ::pwrite, fd_, static_cast<const void*>(in),
           std::min(bytes, kMostAtOnce), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Refused(path_, "written", errno);
    // A drive that takes nothing would be asked for ever.
    if (count == 0) return Refused(path_, "written", EIO);
    in += count;
    offset += static_cast<uint64_t>(count);
    bytes -= static_cast<uint64_t>(count);
  }
  return OkStatus();
}

Status DataFile::Sync() {
  if (Do(&DataFileCalls::fsync, ::fsync, fd_) == 0) return OkStatus();
  return Refused(path_, "put on the drive", errno);
}

Result<std::string> ReadWholeFile(const std::string& path, uint64_t limit) {
  CASTOR_ASSIGN_OR_RETURN(const DataFile file, DataFile::OpenToRead(path));
  if (file.size() > limit) {
    return Malformed(
        fmt::format("{} has {} bytes, and at most {} belong there; copy the "
                    "checkpoint again, or use an older one",
                    QuotedPath(path), file.size(), limit));
  }
  std::string bytes(file.size(), '\0');
  CASTOR_RETURN_IF_ERROR(file.ReadAt(0, bytes.data(), bytes.size()));
  return bytes;
}

Status WriteNewFile(const std::string& path, std::string_view bytes) {
  CASTOR_ASSIGN_OR_RETURN(DataFile file, DataFile::Create(path, bytes.size()));
  CASTOR_RETURN_IF_ERROR(file.WriteAt(0, bytes.data(), bytes.size()));
  return file.Sync();
}

Status SyncFolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Refused(path, "opened", errno);
  const int synced = Do(&DataFileCalls::fsync, ::fsync, fd);
  const int error = errno;
  close(fd);
  if (synced == 0 || error == EINVAL || error == EROFS) return OkStatus();
  return Refused(path, "put on the drive", error);
}

}  // namespace castor
