// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/process_limits.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <new>
#include <string>

#include "offload/nvme/store/run_directory.h"

namespace castor {
namespace {

// What OpenBLAS, MPI and Castor itself have on a stack fits.
constexpr rlim_t kLeastStack = rlim_t{256} << 10;

// Enough for the paths of run directories and for the C library's own needs.
constexpr size_t kReserve = size_t{8} << 20;

// Set before any thread starts and only read after.
struct LastWords {
  void* reserve = nullptr;
  std::string text;
};
LastWords& ToldLast() {
  static LastWords& words = *new LastWords;
  return words;
}

[[noreturn]] void EndWithoutMemory() {
  static std::atomic_flag begun = ATOMIC_FLAG_INIT;
  // Other threads wait for the end that one of them makes. That one may come
  // here again, from the calls below: then only the exit is left.
  static thread_local bool is_ending = false;
  if (!is_ending && begun.test_and_set()) {
    for (;;) ::pause();
  }
  if (!is_ending) {
    is_ending = true;
    ::munmap(ToldLast().reserve, kReserve);
    const std::string& text = ToldLast().text;
    // Nobody is left to be told that this fails.
    [[maybe_unused]] const ssize_t written =
        ::write(STDERR_FILENO, text.data(), text.size());
    RunDirectory::RemoveAllOfThisProcess();
  }
  ::_exit(ExitCode(ErrorCode::kUnavailable));
}

}  // namespace

Status PrepareForLimits(const std::string& who) {
  std::signal(SIGXFSZ, SIG_IGN);
  LastWords& words = ToldLast();
  words.text = fmt::format(
      "{}: memory is exhausted: close other programs, raise the limit (ulimit "
      "-v) or use a smaller model or batch\n",
      who);
  if (words.reserve == nullptr) {
    void* const reserve = ::mmap(nullptr, kReserve, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reserve == MAP_FAILED) return Unavailable("memory is exhausted");
    words.reserve = reserve;
  }
  std::set_new_handler(EndWithoutMemory);
  rlimit stack;
  if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= kLeastStack) {
    return OkStatus();
  }
  return Unavailable(fmt::format(
      "a stack may have {} KiB (ulimit -s), and threads need {} KiB: raise the "
      "limit",
      stack.rlim_cur >> 10, kLeastStack >> 10));
}

}  // namespace castor
