// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_STORE_BACKING_FILE_H_
#define CASTOR_OFFLOAD_NVME_STORE_BACKING_FILE_H_

// The file behind an NVMe tier, made and opened. Owns the descriptor, not the
// file: that goes with its directory. Move-only; thread-compatible. Part of the
// drive (nvme_drive.h).

#include <cstdint>
#include <filesystem>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/nvme/queue/file_calls.h"
#include "offload/nvme/queue/unique_fd.h"

namespace castor {

// What O_DIRECT asks of offsets, sizes and memory, on any drive in use.
inline constexpr Bytes kDirectAlignment = KiB(4);

// When a file gets its space on the drive.
enum class FileSpace : uint8_t {
  kAtOnce,
  kAtOnceIfThere,  // as it is written, where the drive is too full for that
  kAsWritten,
};

struct BackingFile {
  UniqueFd fd;              // for reading and writing
  bool direct = false;      // past the page cache
  bool as_written = false;  // its space comes as it is written
};

// Makes `file`, which must not exist, of `size` bytes, and opens it with
// O_DIRECT, or without where the file system refuses, which is said once.
// Unavailable, as Preallocate says it, where the bytes cannot be had, or where
// the file system cannot give space back bit by bit. `log` may be null.
// REQUIRES: size is a positive multiple of kDirectAlignment.
Result<BackingFile> MakeBackingFile(const std::filesystem::path& file,
                                    Bytes size, Log* log,
                                    FileSpace space = FileSpace::kAtOnce,
                                    const FileCalls& calls = {});

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_STORE_BACKING_FILE_H_
