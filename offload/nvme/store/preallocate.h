// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_STORE_PREALLOCATE_H_
#define CASTOR_OFFLOAD_NVME_STORE_PREALLOCATE_H_

// A disk that is too small is an error at start, not in the middle of a run.
// Part of the drive (nvme_drive.h).

#include <filesystem>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/nvme/queue/file_calls.h"

namespace castor {

// Gives the empty file `fd`, open for writing, `size` bytes that the disk has
// set aside: by fallocate, or where the file system has none, by writing zeros.
// Unavailable, with the need, the free space and the remedy, where they do not
// fit; the file is then to be removed. `file` is its path, for messages.
// `full`, where given: whether the disk, and no quota, was the limit. Blocks.
Status Preallocate(int fd, const std::filesystem::path& file, Bytes size,
                   const FileCalls& calls = {}, bool* full = nullptr);

// Unavailable where this process may not write so large a file: the kernel
// would not answer, but end it by SIGXFSZ.
Status CheckFileLimit(Bytes size);

// Sets the missing parts of a file that has contents aside, by fallocate alone.
// Fails as Preallocate, and the contents stay.
Status AllocateRest(int fd, const std::filesystem::path& file, Bytes size);

// Gives the space of a range of the file back, which then reads as zeros. False
// where the file system cannot.
bool GiveSpace(int fd, Bytes offset, Bytes size);

// What is free on the file's disk, quotas aside; -1 where it does not say, as
// ramfs.
Bytes FreeSpace(int fd);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_STORE_PREALLOCATE_H_
