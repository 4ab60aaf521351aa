// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_FILE_SYSTEM_FACTS_H_
#define CASTOR_OFFLOAD_NVME_FILE_SYSTEM_FACTS_H_

// What a person should know before giving a directory to the NVMe tier. Value.

#include <filesystem>
#include <string>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {

struct FileSystemFacts {
  std::string type;        // "ext4", "tmpfs", "overlay", ...
  Bytes size;              // of all of it; 0 where it is not told (ramfs)
  Bytes free;              // to a user without privileges; 0 likewise
  bool in_memory = false;  // tmpfs, ramfs: bytes there are host memory
  bool overlay = false;    // slow and often small
  bool network = false;    // NFS, SMB, Ceph, Lustre and the like
};

// Unavailable where `path` does not exist or cannot be asked.
Result<FileSystemFacts> DescribeFileSystem(const std::filesystem::path& path);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_FILE_SYSTEM_FACTS_H_
