// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/host/cgroup_folders.h"

#include <fstream>

namespace castor::internal {
namespace {

bool Contains(std::string_view controllers, std::string_view controller) {
  for (;;) {
    const size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == controller) return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
}

// `group` and all above it. Inside a container the upper part of `group` is
// often missing, and the root of the mount is the container's own group.
void AddGroups(const std::string& mount, std::string group, int version,
               std::vector<CgroupFolder>& folders) {
  for (;;) {
    while (group.ends_with('/')) group.pop_back();
    folders.push_back({mount + group, version});
    if (group.empty()) return;
    group.erase(group.rfind('/'));
  }
}

}  // namespace

std::vector<CgroupFolder> CgroupFolders(const SystemPaths& paths,
                                        std::string_view controller) {
  std::vector<CgroupFolder> folders;
  // Lines "4:cpu,cpuacct:/group" for version 1, "0::/group" for version 2.
  std::ifstream file(paths.proc + "/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (!group.starts_with('/')) continue;
    if (controllers.empty()) {
      AddGroups(paths.cgroup, group, 2, folders);
    } else if (Contains(controllers, controller)) {
      AddGroups(paths.cgroup + "/" + std::string(controller), group, 1,
                folders);
    }
  }
  return folders;
}

std::optional<std::string> ReadFirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

}  // namespace castor::internal
