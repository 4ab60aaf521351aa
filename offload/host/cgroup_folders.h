// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_HOST_CGROUP_FOLDERS_H_
#define CASTOR_OFFLOAD_HOST_CGROUP_FOLDERS_H_

// Where the kernel says what the cgroups of this process may use. A limit binds
// all that is below it, so each group counts, from the process's own up to the
// root of the mount. Pure functions of the files, thread-safe. Part of what the
// machine leaves (available_memory.h).

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace castor::internal {

struct SystemPaths {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
};

struct CgroupFolder {
  std::string path;  // some do not exist: those above a container's own group
  int version = 2;   // of cgroups, which decides the names of the files in it
};

// Innermost first, for the controller of that name ("memory", "cpu").
std::vector<CgroupFolder> CgroupFolders(const SystemPaths& paths,
                                        std::string_view controller);

// The first line of a file; nothing where there is none.
std::optional<std::string> ReadFirstLine(const std::string& path);

}  // namespace castor::internal

#endif  // CASTOR_OFFLOAD_HOST_CGROUP_FOLDERS_H_
