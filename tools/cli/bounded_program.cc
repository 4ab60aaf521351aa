// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/bounded_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

namespace castor {
namespace {

using Clock = std::chrono::steady_clock;

// Of the standard error: the last line is at its end.
constexpr size_t kKeptErrorBytes = size_t{64} << 10;
// How often a program that has closed its output is looked at.
constexpr int kLookMs = 2;

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { Close(); }

  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

struct Pipe {
  Fd read_end;
  Fd write_end;
};

bool OpenPipe(Pipe* made) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  made->read_end = Fd(ends[0]);
  made->write_end = Fd(ends[1]);
  return true;
}

// A file in memory at its beginning: whoever writes to a pipe waits for a
// reader, and is killed where it is gone.
bool OpenInput(std::string_view input, Fd* made) {
  *made = Fd(::memfd_create("input", MFD_CLOEXEC));
  if (made->get() < 0) return false;
  while (!input.empty()) {
    const ssize_t count = ::write(made->get(), input.data(), input.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    input.remove_prefix(static_cast<size_t>(count));
  }
  return ::lseek(made->get(), 0, SEEK_SET) == 0;
}

// Moves what is there to the end of `into`; false at the end of the stream.
bool Drain(int fd, std::string* into) {
  std::array<char, size_t{64} << 10> bytes;
  const ssize_t count = ::read(fd, bytes.data(), bytes.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  into->append(bytes.data(), static_cast<size_t>(count));
  return count > 0;
}

std::string LastLine(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t last = text.find_last_not_of(kBlank);
  if (last == text.npos) return "";
  text = text.substr(0, last + 1);
  const size_t end = text.find_last_of("\r\n");
  if (end != text.npos) text.remove_prefix(end + 1);
  text.remove_prefix(text.find_first_not_of(kBlank));
  return std::string(text);
}

// This process's environment but for PYTHONOPTIMIZE, which takes docstrings
// away that libraries read.
std::vector<char*> Environment() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("PYTHONOPTIMIZE=")) {
      kept.push_back(*entry);
    }
  }
  kept.push_back(nullptr);
  return kept;
}

// Starts the program; 0, or the system's reason.
int Start(std::vector<std::string>& words, int input, int output, int error,
          pid_t* child) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int refused = ::posix_spawnp(child, arguments[0], &actions, &attributes,
                                     arguments.data(), Environment().data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return refused;
}

// Whether the child has ended; it stays a child, so that its number stays its.
bool HasEnded(pid_t child) {
  siginfo_t info = {};
  // A process whose parent ignores the ends of children cannot ask.
  return ::waitid(P_PID, static_cast<id_t>(child), &info,
                  WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid == child;
}

// Reads until the child ends, or a limit is reached.
ProgramEnd Follow(pid_t child, int output, int error,
                  const ProgramLimits& limits, ProgramAnswer* answer) {
  const auto end = Clock::now() + limits.time;
  std::string said;
  std::array<pollfd, 2> wait = {{{output, POLLIN, 0}, {error, POLLIN, 0}}};
  ProgramEnd result = ProgramEnd::kExited;
  for (;;) {
    // What it started may hold its outputs open for ever.
    if (HasEnded(child)) break;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - Clock::now());
    if (left.count() <= 0) {
      result = ProgramEnd::kTooLong;
      break;
    }
    const int64_t look = std::min<int64_t>(left.count(), kLookMs);
    if (::poll(wait.data(), wait.size(), static_cast<int>(look)) < 0) continue;
    if (wait[0].fd >= 0 && wait[0].revents != 0 &&
        !Drain(wait[0].fd, &answer->output)) {
      wait[0].fd = -1;
    }
    if (wait[1].fd >= 0 && wait[1].revents != 0 && !Drain(wait[1].fd, &said)) {
      wait[1].fd = -1;
    }
    if (said.size() > 2 * kKeptErrorBytes) {
      said.erase(0, said.size() - kKeptErrorBytes);
    }
    if (answer->output.size() > limits.output_bytes) {
      result = ProgramEnd::kTooMuch;
      break;
    }
  }
  // What it said last may still be in the pipes.
  while (wait[0].fd >= 0 && ::poll(&wait[0], 1, 0) > 0 &&
         answer->output.size() <= limits.output_bytes &&
         Drain(wait[0].fd, &answer->output)) {
  }
  if (answer->output.size() > limits.output_bytes) {
    result = ProgramEnd::kTooMuch;
  }
  while (wait[1].fd >= 0 && ::poll(&wait[1], 1, 0) > 0 &&
         Drain(wait[1].fd, &said) && said.size() <= 4 * kKeptErrorBytes) {
  }
  answer->last_said = LastLine(said);
  return result;
}

}  // namespace

ProgramAnswer RunBounded(std::vector<std::string> words, std::string_view input,
                         const ProgramLimits& limits) {
  ProgramAnswer answer;
  Fd given;
  Pipe output;
  Pipe error;
  const auto refuse = [&answer](int reason) {
    answer.refused = std::generic_category().message(reason);
    return answer;
  };
  if (!OpenInput(input, &given) || !OpenPipe(&output) || !OpenPipe(&error)) {
    return refuse(errno);
  }
  pid_t child = 0;
  const int refused = Start(words, given.get(), output.write_end.get(),
                            error.write_end.get(), &child);
  if (refused != 0) return refuse(refused);
  output.write_end.Close();
  error.write_end.Close();
  answer.end = Follow(child, output.read_end.get(), error.read_end.get(),
                      limits, &answer);
  ::kill(-child, SIGKILL);  // what it has started in its group too
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (answer.end == ProgramEnd::kExited && WIFEXITED(status)) {
    answer.exit_code = WEXITSTATUS(status);
  }
  return answer;
}

std::string PythonToAsk(const std::string& named) {
  if (!named.empty()) return named;
  const char* const known = std::getenv("CASTOR_PYTHON");
  return known != nullptr && *known != '\0' ? known : "python3";
}

}  // namespace castor
