// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/record/input_pipe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "chunk/text/quote.h"

namespace castor {
namespace {

// Whether a pipe that does not block holds bytes or has a writer. tee() takes
// nothing out of the pipe, and fails with EAGAIN where a writer may still
// write.
bool HasWriter(int fd) {
  int copy[2];
  if (pipe2(copy, O_CLOEXEC) != 0) return true;  // reading will tell
  const ssize_t got = tee(fd, copy[1], 1, SPLICE_F_NONBLOCK);
  close(copy[0]);
  close(copy[1]);
  return got != 0;
}

}  // namespace

Status AwaitWriter(int fd, const std::string& path) {
  constexpr int kMostTries = 100;
  constexpr std::chrono::milliseconds kPause(20);
  struct stat info;
  if (fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode)) {
    int tries = 0;
    while (!HasWriter(fd)) {
      if (++tries > kMostTries) {
        return InvalidArgument(fmt::format(
            "{} is a pipe, and nobody has written to it for 2 s: start its "
            "writer first, or give a file",
            QuotedPath(path)));
      }
      std::this_thread::sleep_for(kPause);
    }
  }
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return OkStatus();
}

}  // namespace castor
