// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/store/backing_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "chunk/base/check.h"
#include "offload/nvme/file_system_facts.h"
#include "offload/nvme/store/preallocate.h"

namespace castor {
namespace {

std::string ErrorText(int error) {
  return fmt::format("{} (errno {})", std::generic_category().message(error),
                     error);
}

// `file` opened past the page cache, or the reason why that cannot be: some
// file systems refuse to open, others refuse the first transfer.
Result<UniqueFd> OpenDirect(const std::filesystem::path& file) {
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
  if (!fd.valid()) return Unavailable(ErrorText(errno));
  alignas(kDirectAlignment.count()) static constexpr char
      kZeros[kDirectAlignment.count()] = {};
  ssize_t written = 0;
  do {
    written = ::pwrite(fd.get(), kZeros, sizeof(kZeros), 0);
  } while (written < 0 && errno == EINTR);
  if (written != static_cast<ssize_t>(sizeof(kZeros))) {
    return Unavailable(written < 0 ? ErrorText(errno) : "short write");
  }
  return fd;
}

// Kernels from 6.6 on take O_DIRECT for files in memory.
void WarnOfMemory(const std::filesystem::path& run_directory, Log* log) {
  if (log == nullptr) return;
  const Result<FileSystemFacts> facts = DescribeFileSystem(run_directory);
  if (!facts.ok() || !facts->in_memory) return;
  const std::string directory = run_directory.parent_path().string();
  log->WarnOnce(
      fmt::format("nvme.memory {}", directory),
      fmt::format("the NVMe directory {} is on {}, which is host memory: what "
                  "goes there counts against no budget and saves no memory. "
                  "Give the NVMe tier a directory on a drive",
                  directory, facts->type));
}

}  // namespace

Result<BackingFile> MakeBackingFile(const std::filesystem::path& file,
                                    Bytes size, Log* log, FileSpace space,
                                    const FileCalls& calls) {
  CASTOR_CHECK_GT(size, Bytes(0));
  CASTOR_CHECK_EQ(size % kDirectAlignment, Bytes(0));
  BackingFile made;
  made.fd = UniqueFd(
      ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!made.fd.valid()) {
    return Unavailable(
        fmt::format("cannot make {}: {}. Give the NVMe tier another directory",
                    file.string(), ErrorText(errno)));
  }
  CASTOR_RETURN_IF_ERROR(CheckFileLimit(size));
  bool full = space == FileSpace::kAsWritten;
  Status taken = Unavailable(
      fmt::format("the file system of {} cannot set space aside, or give it "
                  "back, bit by bit. Give the NVMe tier a directory on ext4 or "
                  "xfs",
                  file.parent_path().string()));
  if (space != FileSpace::kAsWritten) {
    taken = Preallocate(made.fd.get(), file, size, calls, &full);
  }
  if (full && space != FileSpace::kAtOnce) {
    // What a refused call took goes back. The first block shows what the file
    // system can do, and is there for O_DIRECT to be tried.
    made.as_written = ::ftruncate(made.fd.get(), 0) == 0 &&
                      ::ftruncate(made.fd.get(), size.count()) == 0 &&
                      GiveSpace(made.fd.get(), Bytes(0), kDirectAlignment) &&
                      AllocateRest(made.fd.get(), file, kDirectAlignment).ok();
    if (made.as_written) taken = OkStatus();
  }
  CASTOR_RETURN_IF_ERROR(taken);
  Result<UniqueFd> direct = OpenDirect(file);
  if (direct.ok()) {
    made.fd = std::move(direct).value();
    made.direct = true;
    WarnOfMemory(file.parent_path(), log);
  } else if (log != nullptr) {
    // Once per directory that was given: it holds that of the run.
    log->WarnOnce(
        fmt::format("nvme.o_direct {}",
                    file.parent_path().parent_path().string()),
        fmt::format("NVMe transfers go through the page cache, which takes "
                    "host memory and time: the file system of {} refuses "
                    "O_DIRECT: {}. Give the NVMe tier a directory on ext4 or "
                    "xfs",
                    file.parent_path().string(), direct.status().message()));
  }
  return made;
}

}  // namespace castor
