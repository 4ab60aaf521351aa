// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/file_system_facts.h"

#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

namespace castor {
namespace {

// linux/magic.h has no name for it.
constexpr uint64_t kRamfsMagic = 0x858458f6;

// Of file systems of other machines, by the magic numbers in statfs(2) and in
// the sources of those that are not in the kernel.
constexpr uint64_t kNetwork[] = {
    NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC,         CIFS_SUPER_MAGIC,
    SMB2_SUPER_MAGIC, AFS_SUPER_MAGIC,         CEPH_SUPER_MAGIC,
    V9FS_MAGIC,       0x0bd00bd0 /* Lustre */, 0x47504653 /* GPFS */,
    0x19830326 /* BeeGFS */};

// mountinfo writes blanks and backslashes of a path as \ooo.
std::string Unescape(const std::string& text) {
  std::string path;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      path += static_cast<char>((text[i + 1] - '0') * 64 +
                                (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      path += text[i];
    }
  }
  return path;
}

bool IsWithin(const std::string& path, const std::string& folder) {
  if (folder == "/") return true;
  return path.starts_with(folder) &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

// The type under which `path`, absolute and without links, is mounted; empty
// where the mount table does not tell. The number that statfs gives is the same
// for ext2, ext3 and ext4.
std::string MountedType(const std::string& path) {
  std::ifstream table("/proc/self/mountinfo");
  std::string type;
  size_t longest = 0;
  for (std::string line; std::getline(table, line);) {
    // id parent major:minor root mount-point options tags... - type source ...
    std::istringstream fields(line);
    std::string skipped, mount_point, field;
    fields >> skipped >> skipped >> skipped >> skipped >> mount_point;
    while (fields >> field && field != "-") {
    }
    if (!(fields >> field)) continue;
    mount_point = Unescape(mount_point);
    // Of several mounts at one place the last lies on top.
    if (IsWithin(path, mount_point) && mount_point.size() >= longest) {
      longest = mount_point.size();
      type = field;
    }
  }
  return type;
}

}  // namespace

Result<FileSystemFacts> DescribeFileSystem(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  struct statfs numbers;
  if (!error && ::statfs(real.c_str(), &numbers) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (error) {
    return Unavailable(fmt::format("cannot examine the file system of {}: {}",
                                   path.string(), error.message()));
  }
  // Signed or not, narrow or wide, by architecture.
  const uint64_t magic = static_cast<uint32_t>(numbers.f_type);
  FileSystemFacts facts;
  facts.type = MountedType(real.string());
  if (facts.type.empty()) facts.type = fmt::format("unknown (0x{:x})", magic);
  facts.size = Bytes(static_cast<int64_t>(numbers.f_blocks)) *
               static_cast<int64_t>(numbers.f_frsize);
  facts.free = Bytes(static_cast<int64_t>(numbers.f_bavail)) *
               static_cast<int64_t>(numbers.f_frsize);
  facts.in_memory = magic == TMPFS_MAGIC || magic == kRamfsMagic;
  facts.overlay = magic == OVERLAYFS_SUPER_MAGIC;
  facts.network = std::ranges::find(kNetwork, magic) != std::end(kNetwork);
  return facts;
}

}  // namespace castor
