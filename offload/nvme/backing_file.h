// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_BACKING_FILE_H_
#define CASTOR_OFFLOAD_NVME_BACKING_FILE_H_

// The file behind an NVMe tier, made and opened. Owns the descriptor, not the
// file: that goes with its directory. Move-only; thread-compatible. Part of the
// drive (nvme_drive.h).

#include <filesystem>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/nvme/unique_fd.h"

namespace castor {

// What O_DIRECT asks of offsets, sizes and memory, on any drive in use.
inline constexpr Bytes kDirectAlignment = KiB(4);

struct BackingFile {
  UniqueFd fd;          // for reading and writing
  bool direct = false;  // past the page cache
};

// Makes `file`, which must not exist, with `size` bytes set aside, and opens it
// with O_DIRECT, or without where the file system refuses, which is said once.
// Unavailable, as Preallocate says it, where the bytes cannot be had. `log` may
// be null. REQUIRES: size is a positive multiple of kDirectAlignment.
Result<BackingFile> MakeBackingFile(const std::filesystem::path& file,
                                    Bytes size, Log* log);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_BACKING_FILE_H_
