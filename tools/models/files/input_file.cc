// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/text/quote.h"
#include "offload/record/input_pipe.h"

namespace castor {
namespace {

Status SystemRefused(const std::string& path, std::string_view what) {
  return IoError(fmt::format("{}: the system refused to {} it: {}",
                             QuotedPath(path), what, std::strerror(errno)));
}

}  // namespace

Result<InputFile> InputFile::Open(const std::string& path) {
  return OpenWith(path, Wait::kForWriter);
}

Result<InputFile> InputFile::OpenRegular(const std::string& path) {
  CASTOR_ASSIGN_OR_RETURN(InputFile file, OpenWith(path, Wait::kNever));
  if (!file.is_regular()) {
    return InvalidArgument(fmt::format(
        "{} is no regular file; its header is read at an offset, so give a "
        "file on disk",
        QuotedPath(file.path())));
  }
  return file;
}

Result<InputFile> InputFile::OpenWith(const std::string& path, Wait wait) {
  const bool standard_input = path == "-";
  const int fd =
      standard_input
          ? STDIN_FILENO
          : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      struct stat link;
      if (lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
        return Malformed(fmt::format(
            "{}: a link to a file that is missing; download or copy it again",
            QuotedPath(path)));
      }
      return InvalidArgument(fmt::format(
          "{}: no such file or folder; check the path", QuotedPath(path)));
    }
    return SystemRefused(path, "open");
  }
  InputFile file(standard_input ? "standard input" : path, fd, !standard_input);
  if (!standard_input && wait == Wait::kForWriter) {
    CASTOR_RETURN_IF_ERROR(AwaitWriter(fd, path));
  }
  struct stat info;
  if (fstat(fd, &info) != 0) return SystemRefused(path, "describe");
  if (S_ISDIR(info.st_mode)) {
    return InvalidArgument(fmt::format(
        "{} is a folder where a file is expected", QuotedPath(path)));
  }
  file.is_regular_ = S_ISREG(info.st_mode);
  if (file.is_regular_) file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

InputFile::InputFile(std::string path, int fd, bool owned)
    : path_(std::move(path)), fd_(fd), owned_(owned) {}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      owned_(std::exchange(other.owned_, false)),
      is_regular_(other.is_regular_),
      size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(owned_, other.owned_);
  std::swap(is_regular_, other.is_regular_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (owned_) close(fd_);
}

Result<std::string> InputFile::ReadAt(uint64_t offset, uint64_t length) const {
  CASTOR_CHECK(is_regular_);
  CASTOR_CHECK_LE(offset, size_);
  CASTOR_CHECK_LE(length, size_ - offset);
  std::string bytes(length, '\0');
  uint64_t done = 0;
  while (done < length) {
    const ssize_t count = pread(fd_, bytes.data() + done, length - done,
                                static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemRefused(path_, "read");
    if (count == 0) {
      return Malformed(fmt::format(
          "{}: the file ends at byte {}, but was {} bytes long when opened; "
          "wait until it is written",
          QuotedPath(path_), offset + done, size_));
    }
    done += static_cast<uint64_t>(count);
  }
  return bytes;
}

Result<std::string> InputFile::ReadAll(uint64_t limit) {
  constexpr size_t kPiece = size_t{1} << 16;
  std::string bytes;
  while (true) {
    const size_t done = bytes.size();
    bytes.resize(done + kPiece);
    const ssize_t count = read(fd_, bytes.data() + done, kPiece);
    if (count < 0 && errno != EINTR) return SystemRefused(path_, "read");
    bytes.resize(done + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (bytes.size() > limit) {
      return Malformed(fmt::format(
          "{} holds more than {} bytes, the most that is read of a file of "
          "this kind; give the model's config.json or .safetensors instead",
          QuotedPath(path_), limit));
    }
    if (count == 0) return bytes;
  }
}

}  // namespace castor
