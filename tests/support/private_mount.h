// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_PRIVATE_MOUNT_H_
#define CASTOR_TESTS_SUPPORT_PRIVATE_MOUNT_H_

// Runs the end of a test in a child process that alone sees a file system of
// the test's choice, such as a tmpfs of 8 MiB: a real full disk, without a
// disk. Needs user namespaces or root; where the machine allows neither, the
// test is skipped. REQUIRES: the caller has no other threads.

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "chunk/base/check.h"
#include "gtest/gtest.h"

namespace castor {

struct PrivateMount {
  std::string type;     // "tmpfs", "ramfs"
  std::string options;  // "size=8m"
  bool read_only = false;
};

// Mounts on `directory`, which exists, and runs `body` there, whose gtest
// expectations count.
inline void RunWithPrivateMount(const PrivateMount& mount,
                                const std::filesystem::path& directory,
                                const std::function<void()>& body) {
  const auto set_up = [&]() -> std::string {
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
  std::fflush(nullptr);
  const pid_t child = fork();
  CASTOR_CHECK_GE(child, 0);
  if (child == 0) {
    const std::string refused = set_up();
    if (refused.empty()) body();
    const auto size = static_cast<ssize_t>(refused.size());
    const bool told = write(ends[1], refused.data(), refused.size()) == size;
    _exit(told && !testing::Test::HasFailure() ? 0 : 1);
  }
  close(ends[1]);
  char refused[256] = {};
  const ssize_t got = read(ends[0], refused, sizeof(refused) - 1);
  close(ends[0]);
  int status = 0;
  CASTOR_CHECK_EQ(waitpid(child, &status, 0), child);
  if (got > 0) GTEST_SKIP() << refused;
  EXPECT_EQ(status, 0) << "the child's end, which says more above";
}

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_PRIVATE_MOUNT_H_
