// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/store/nvme_drive.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "chunk/base/check.h"
#include "offload/nvme/store/preallocate.h"

namespace castor {
namespace {

constexpr char kFileName[] = "nvme.data";

}  // namespace

NvmeDrive::NvmeDrive(const NvmeDriveOptions& options,
                     std::unique_ptr<IoQueue> queue, Log* log)
    : size_(options.size), log_(log), queue_(std::move(queue)) {}

NvmeDrive::~NvmeDrive() {
  const Status status = Close();
  if (!status.ok() && log_ != nullptr) log_->Warning(status.message());
}

Result<std::unique_ptr<NvmeDrive>> NvmeDrive::Open(
    const NvmeDriveOptions& options, std::unique_ptr<IoQueue> queue, Log* log) {
  CASTOR_CHECK(queue != nullptr);
  if (options.size <= Bytes(0) || options.size % kDirectAlignment != Bytes(0)) {
    return InvalidArgument(fmt::format(
        "the size of the NVMe tier in {}, {} B, must be a positive multiple of "
        "{} B",
        options.directory.string(), options.size.count(),
        kDirectAlignment.count()));
  }
  std::unique_ptr<NvmeDrive> drive(
      new NvmeDrive(options, std::move(queue), log));
  if (!options.dry) CASTOR_RETURN_IF_ERROR(drive->MakeFile(options));
  return drive;
}

Status NvmeDrive::MakeFile(const NvmeDriveOptions& options) {
  CASTOR_ASSIGN_OR_RETURN(directory_,
                          RunDirectory::Create(options.directory, log_));
  file_ = directory_->path() / kFileName;
  CASTOR_ASSIGN_OR_RETURN(
      BackingFile backing,
      MakeBackingFile(file_, options.size, log_, options.space));
  fd_ = std::move(backing.fd);
  direct_ = backing.direct;
  as_written_ = backing.as_written;
  const Status registered = queue_->RegisterFile(fd_.get());
  if (!registered.ok() && log_ != nullptr) {
    log_->WarnOnce("nvme.register_file", registered.message());
  }
  return OkStatus();
}

Status NvmeDrive::TakeSpace() {
  if (!as_written_) return OkStatus();
  CASTOR_RETURN_IF_ERROR(AllocateRest(fd_.get(), file_, size_));
  as_written_ = false;
  return OkStatus();
}

void NvmeDrive::RegisterMemory(std::span<std::byte> memory) {
  if (memory.empty()) return;
  Result<Bytes> registered = queue_->RegisterMemory(memory);
  if (registered.ok()) {
    registered_ = *registered;
  } else if (log_ != nullptr) {
    log_->WarnOnce("nvme.register_memory",
                   fmt::format("NVMe transfers pin their memory each time, "
                               "which takes processor time: {}",
                               registered.status().message()));
  }
}

Status NvmeDrive::Close() {
  queue_.reset();
  if (!fd_.valid()) return directory_ ? directory_->Close() : OkStatus();
  Status status;
  if (const int error = fd_.Close(); error != 0) {
    status =
        IoError(fmt::format("closing {} failed: {} (errno {})", file_.string(),
                            std::generic_category().message(error), error));
  }
  const Status removed = directory_->Close();
  return status.ok() ? removed : status;
}

}  // namespace castor
