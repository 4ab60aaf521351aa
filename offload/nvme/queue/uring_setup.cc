// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/queue/uring_setup.h"

#include <fmt/format.h>
#include <liburing.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace castor {
namespace {

std::string Reason(int error) {
  return fmt::format("{} (errno {})", std::generic_category().message(error),
                     error);
}

std::string LimitText() {
  rlimit limit;
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "not known";
  if (limit.rlim_cur == RLIM_INFINITY) return "none";
  return fmt::format("{} B", limit.rlim_cur);
}

}  // namespace

Status RingRefused(int error) {
  std::string_view remedy;
  switch (error) {
    case ENOSYS:
      remedy =
          "use Linux 5.6 or later, and a container whose seccomp profile "
          "allows io_uring";
      break;
    case EPERM:
    case EACCES:
      remedy =
          "set sysctl kernel.io_uring_disabled=0, or use a container whose "
          "seccomp profile allows io_uring";
      break;
    case ENOMEM:
      remedy = "raise the limit of locked memory (ulimit -l)";
      break;
    case EMFILE:
    case ENFILE:
      remedy = "raise the limit of open files (ulimit -n)";
      break;
    default:
      remedy = "see io_uring_setup(2)";
  }
  return Unavailable(
      fmt::format("the kernel refuses io_uring: {}; to have it, {}",
                  Reason(error), remedy));
}

Status SetUpRing(int entries, io_uring* ring) {
  // Completions wait for the thread that asks for them instead of interrupting
  // it; kernels before 5.19 know nothing of that.
  const unsigned count = static_cast<unsigned>(entries);
  int result = io_uring_queue_init(count, ring, IORING_SETUP_COOP_TASKRUN);
  if (result == -EINVAL) result = io_uring_queue_init(count, ring, 0);
  if (result < 0) return RingRefused(-result);
  io_uring_probe* probe = io_uring_get_probe_ring(ring);
  bool has_all = probe != nullptr;
  for (const int operation : {IORING_OP_READ, IORING_OP_WRITE,
                              IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED}) {
    has_all = has_all && io_uring_opcode_supported(probe, operation);
  }
  io_uring_free_probe(probe);
  if (has_all) return OkStatus();
  io_uring_queue_exit(ring);
  return RingRefused(ENOSYS);
}

Status RegisterRingFile(int fd, io_uring* ring) {
  const int result = io_uring_register_files(ring, &fd, 1);
  if (result >= 0) return OkStatus();
  return Unavailable(
      fmt::format("the kernel registers no file with io_uring: {}; every "
                  "transfer looks it up, which costs little",
                  Reason(-result)));
}

Status RegisterRingMemory(std::span<std::byte> memory, io_uring* ring) {
  const size_t piece = static_cast<size_t>(kRegisteredPiece.count());
  std::vector<iovec> pieces;
  for (size_t begin = 0; begin < memory.size(); begin += piece) {
    pieces.push_back({.iov_base = memory.data() + begin,
                      .iov_len = std::min(piece, memory.size() - begin)});
  }
  const int result = io_uring_register_buffers(
      ring, pieces.data(), static_cast<unsigned>(pieces.size()));
  if (result >= 0) return OkStatus();
  const std::string_view remedy =
      result == -ENOMEM || result == -EPERM
          ? "raise it above that (ulimit -l, LimitMEMLOCK= of systemd, "
            "--ulimit memlock=-1 of docker)"
          : "see io_uring_register(2)";
  return Unavailable(
      fmt::format("the kernel registers no memory with io_uring: {}: {} B are "
                  "to be registered, and the limit of locked memory is {}; {}",
                  Reason(-result), memory.size(), LimitText(), remedy));
}

}  // namespace castor
