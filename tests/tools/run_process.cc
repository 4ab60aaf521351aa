// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/tools/run_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "chunk/base/check.h"

namespace castor {
namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

Pipe MakePipe() {
  std::array<int, 2> ends;
  CASTOR_CHECK(pipe2(ends.data(), O_CLOEXEC) == 0);
  return {ends[0], ends[1]};
}

// Reads what is there; false at the end of the stream.
bool Drain(int fd, std::string* into) {
  std::array<char, 1 << 16> buffer;
  const ssize_t count = read(fd, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  into->append(buffer.data(), static_cast<size_t>(count));
  return count > 0;
}

ProcessOutcome Run(const std::vector<std::string>& command,
                   const std::string& input, int out_file) {
  const Pipe in = MakePipe();
  const Pipe out = MakePipe();
  const Pipe err = MakePipe();
  std::vector<char*> argv;
  for (const std::string& arg : command) {
    argv.push_back(const_cast<char*>(arg.c_str()));
  }
  argv.push_back(nullptr);

  const pid_t child = fork();
  CASTOR_CHECK(child >= 0);
  if (child == 0) {
    dup2(in.read_end, STDIN_FILENO);
    dup2(out_file >= 0 ? out_file : out.write_end, STDOUT_FILENO);
    dup2(err.write_end, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(in.read_end);
  close(out.write_end);
  close(err.write_end);

  // A program may end without reading all its input.
  const auto old_handler = std::signal(SIGPIPE, SIG_IGN);
  ProcessOutcome outcome;
  size_t written = 0;
  std::array<pollfd, 3> fds = {{{out.read_end, POLLIN, 0},
                                {err.read_end, POLLIN, 0},
                                {in.write_end, POLLOUT, 0}}};
  fcntl(in.write_end, F_SETFL, O_NONBLOCK);
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    if (fds[2].fd >= 0 && written == input.size()) {
      close(in.write_end);
      fds[2].fd = -1;
    }
    CASTOR_CHECK(poll(fds.data(), fds.size(), -1) >= 0 || errno == EINTR);
    if (fds[0].revents != 0 && !Drain(fds[0].fd, &outcome.out)) fds[0].fd = -1;
    if (fds[1].revents != 0 && !Drain(fds[1].fd, &outcome.err)) fds[1].fd = -1;
    if (fds[2].fd >= 0 && fds[2].revents != 0) {
      const ssize_t count =
          write(in.write_end, input.data() + written, input.size() - written);
      if (count > 0) written += static_cast<size_t>(count);
      if (count < 0 && errno != EAGAIN && errno != EINTR) {
        written = input.size();
      }
    }
  }
  if (fds[2].fd >= 0) close(in.write_end);
  close(out.read_end);
  close(err.read_end);
  std::signal(SIGPIPE, old_handler);

  int status = 0;
  CASTOR_CHECK(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

}  // namespace

ProcessOutcome RunProcess(const std::vector<std::string>& command,
                          const std::string& input) {
  return Run(command, input, -1);
}

ProcessOutcome RunProcessInto(const std::vector<std::string>& command,
                              const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  CASTOR_CHECK(file >= 0);
  const ProcessOutcome outcome = Run(command, "", file);
  close(file);
  return outcome;
}

}  // namespace castor
