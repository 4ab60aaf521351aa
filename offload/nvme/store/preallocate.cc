// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/store/preallocate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

namespace castor {
namespace {

std::string Amount(Bytes bytes) {
  return fmt::format("{} B ({:.1f} MiB)", bytes.count(),
                     static_cast<double>(bytes.count()) / (1 << 20));
}

Status DoesNotFit(const std::filesystem::path& file, Bytes size, Bytes free,
                  int error) {
  std::string room = "an unknown amount";
  if (free >= Bytes(0)) room = Amount(free);
  std::string why = std::generic_category().message(error);
  if (error == EDQUOT) why += ", so the user's quota is the limit";
  return Unavailable(fmt::format(
      "the NVMe tier needs {} in {}, where {} is free: {}. Free some space "
      "there, give the tier another directory, or a smaller size",
      Amount(size), file.parent_path().string(), room, why));
}

Status Failed(const std::filesystem::path& file, Bytes size, int error) {
  return Unavailable(fmt::format(
      "cannot set {} aside for the NVMe tier in {}: {} (errno {}). Give the "
      "tier another directory",
      Amount(size), file.string(), std::generic_category().message(error),
      error));
}

bool IsFull(int error) { return error == ENOSPC || error == EDQUOT; }

// 0 or the errno.
// 0, or what went wrong.
int Allocate(int fd, Bytes size, const FileCalls& calls) {
  int result = 0;
  do {
    result = calls.fallocate(fd, 0, 0, size.count());
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

int WriteZeros(int fd, Bytes size, const FileCalls& calls) {
  const std::vector<char> zeros(
      static_cast<size_t>(std::min(size, MiB(1)).count()));
  int64_t written = 0;
  while (written < size.count()) {
    const size_t piece = static_cast<size_t>(std::min<int64_t>(
        size.count() - written, static_cast<int64_t>(zeros.size())));
    const ssize_t result = calls.pwrite(fd, zeros.data(), piece, written);
    if (result > 0) {
      written += result;
    } else if (result == 0) {
      return EIO;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  // A file system that allocates late would notice a full disk only now.
  return ::fsync(fd) == 0 ? 0 : errno;
}

}  // namespace

Bytes FreeSpace(int fd) {
  struct statvfs numbers;
  if (::fstatvfs(fd, &numbers) != 0 || numbers.f_blocks == 0) return Bytes(-1);
  return Bytes(static_cast<int64_t>(numbers.f_bavail)) *
         static_cast<int64_t>(numbers.f_frsize);
}

bool GiveSpace(int fd, Bytes offset, Bytes size) {
  int result = 0;
  do {
    result = ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         offset.count(), size.count());
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

Status CheckFileLimit(Bytes size) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur >= static_cast<uint64_t>(size.count())) {
    return OkStatus();
  }
  return Unavailable(fmt::format(
      "the NVMe tier needs a file of {}, and this process may not write more "
      "than {} B to one: raise the limit of file size (ulimit -f)",
      Amount(size), limit.rlim_cur));
}

Status AllocateRest(int fd, const std::filesystem::path& file, Bytes size) {
  const Bytes free = FreeSpace(fd);
  const int error = Allocate(fd, size, {});
  if (error == 0) return OkStatus();
  return IsFull(error) ? DoesNotFit(file, size, free, error)
                       : Failed(file, size, error);
}

Status Preallocate(int fd, const std::filesystem::path& file, Bytes size,
                   const FileCalls& calls, bool* full) {
  CASTOR_RETURN_IF_ERROR(CheckFileLimit(size));
  const Bytes free = FreeSpace(fd);
  int error = Allocate(fd, size, calls);
  if (error == 0) return OkStatus();
  if (full != nullptr) *full = error == ENOSPC;
  if (error == EOPNOTSUPP || error == ENOSYS) {
    // Zeros that cannot fit are not even begun, for the sake of others who
    // write to that disk.
    error =
        free >= Bytes(0) && free < size ? ENOSPC : WriteZeros(fd, size, calls);
    if (error == 0) return OkStatus();
  }
  return IsFull(error) ? DoesNotFit(file, size, free, error)
                       : Failed(file, size, error);
}

}  // namespace castor
