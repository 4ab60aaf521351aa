// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "tools/commands/doctor/doctor.h"

namespace castor {
namespace {

// Its version is in the package's metadata; importing it takes seconds, so only
// a machine with a GPU asks torch itself.
constexpr char kAsk[] =
    "import importlib.metadata as m, sys\n"
    "print(m.version(\"torch\"))\n"
    "if len(sys.argv) > 1:\n"
    "    import torch\n"
    "    if torch.cuda.is_available():\n"
    "        major, minor = torch.cuda.get_device_capability()\n"
    "        print(10 * major + minor)\n"
    "        print(torch.cuda.get_device_name())\n";

// What the program prints until it ends, or until so much time is over, which
// ends it: a wrapper that cannot fork tries for ever.
std::string OutputOf(std::vector<std::string> words, int timeout_ms) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "";
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int refused = ::posix_spawnp(&child, arguments[0], &actions,
                                     &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string output;
  if (refused == 0) {
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::milliseconds(timeout_ms);
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      pollfd wait = {.fd = ends[0], .events = POLLIN, .revents = 0};
      char bytes[512];
      if (left.count() <= 0 ||
          ::poll(&wait, 1, static_cast<int>(left.count())) <= 0) {
        break;
      }
      const ssize_t count = ::read(ends[0], bytes, sizeof(bytes));
      if (count <= 0) break;
      output.append(bytes, static_cast<size_t>(count));
    }
    ::kill(-child, SIGKILL);  // its group; one that has ended hears nothing
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  ::close(ends[0]);
  return output;
}

}  // namespace

TorchFacts ReadTorchFacts(bool gpu) {
  const char* const named = std::getenv("CASTOR_PYTHON");
  TorchFacts facts;
  facts.python = named != nullptr && *named != '\0' ? named : "python3";
  std::vector<std::string> words = {facts.python, "-c", kAsk};
  if (gpu) words.push_back("gpu");
  std::istringstream output(OutputOf(words, gpu ? 60'000 : 5'000));
  std::vector<std::string> lines;
  for (std::string line; std::getline(output, line);) lines.push_back(line);
  if (!lines.empty()) facts.version = lines[0];
  if (lines.size() > 2) {
    const std::string& capability = lines[1];
    std::from_chars(capability.data(), capability.data() + capability.size(),
                    facts.capability);
    facts.gpu = lines[2];
  }
  return facts;
}

}  // namespace castor
