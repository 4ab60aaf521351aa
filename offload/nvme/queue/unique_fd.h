// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_QUEUE_UNIQUE_FD_H_
#define CASTOR_OFFLOAD_NVME_QUEUE_UNIQUE_FD_H_

// A UniqueFd owns one file descriptor and closes it. Move-only;
// thread-compatible.

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace castor {

class UniqueFd {
 public:
  UniqueFd() = default;  // owns none
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~UniqueFd() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

  // Closes it now; 0, or the errno with which the system answered. The
  // descriptor is gone in either case.
  int Close() {
    if (fd_ < 0) return 0;
    return ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno;
  }

 private:
  int fd_ = -1;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_QUEUE_UNIQUE_FD_H_
