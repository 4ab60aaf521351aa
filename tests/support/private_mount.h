// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_PRIVATE_MOUNT_H_
#define CASTOR_TESTS_SUPPORT_PRIVATE_MOUNT_H_

// Runs part of a test in a child process that alone sees a file system of the
// test's choice, such as a tmpfs of 8 MiB: a real full disk, without a disk.
// Needs user namespaces or root; where the machine allows neither, the result
// says why, and the test is to be skipped with it. REQUIRES: the caller has no
// other threads.

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>

#include "chunk/base/check.h"

namespace castor {

struct PrivateMountResult {
  std::string skipped;  // the reason why nothing was run, else empty
  std::string failure;  // what `body` returned, or how the child ended
};

struct PrivateMount {
  std::string type;     // "tmpfs", "ramfs"
  std::string options;  // "size=8m"
  bool read_only = false;
};

// Mounts on `directory`, which exists, and runs `body` there. `body` returns
// what is wrong, or nothing; gtest's macros do not reach out of the child.
inline PrivateMountResult RunWithPrivateMount(
    const PrivateMount& mount, const std::filesystem::path& directory,
    const std::function<std::string()>& body) {
  auto set_up = [&]() -> std::string {
    const uid_t user = getuid();
    const gid_t group = getgid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) {
      std::ofstream("/proc/self/setgroups") << "deny";
      std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
      std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
    } else if (unshare(CLONE_NEWNS) != 0) {
      return std::string("unshare: ") + std::strerror(errno);
    }
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("castor", directory.c_str(), mount.type.c_str(),
                mount.read_only ? MS_RDONLY : 0, mount.options.c_str()) != 0) {
      return std::string("mount: ") + std::strerror(errno);
    }
    return "";
  };

  int ends[2];
  CASTOR_CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
  std::cout.flush();
  const pid_t child = fork();
  CASTOR_CHECK_GE(child, 0);
  if (child == 0) {
    std::string said = set_up();
    said = said.empty() ? "F" + body() : "S" + said;
    const ssize_t written = write(ends[1], said.data(), said.size());
    _exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    said.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  CASTOR_CHECK_EQ(waitpid(child, &status, 0), child);
  if (said.empty() || status != 0) {
    return {.skipped = "",
            .failure = "the child ended with status " + std::to_string(status)};
  }
  const std::string text = said.substr(1);
  if (said[0] == 'S') return {.skipped = text, .failure = ""};
  return {.skipped = "", .failure = text};
}

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_PRIVATE_MOUNT_H_
