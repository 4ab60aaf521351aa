// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "chunk/text/quote.h"

namespace castor {
namespace {

Status CannotWrite(const std::string& path, const std::string& why) {
  return InvalidArgument(
      fmt::format("{} cannot be written: {}; name a file in a folder that "
                  "exists",
                  QuotedPath(path), why));
}

Status SystemRefused(const std::string& path, int error) {
  return IoError(fmt::format(
      "{} could not be written: {}; free some space, or write it elsewhere",
      QuotedPath(path), std::strerror(error)));
}

// Where `path` leads to when it is a symbolic link, so that the link stays.
std::string Resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(
      realpath(path.c_str(), nullptr), &std::free);
  return real == nullptr ? path : std::string(real.get());
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status CheckTarget(const std::string& path, const std::string& shown) {
  if (path.empty()) return CannotWrite(shown, "the name is empty");
  struct stat found = {};
  if (stat(path.c_str(), &found) == 0) {
    if (S_ISREG(found.st_mode)) return OkStatus();
    return CannotWrite(shown, S_ISDIR(found.st_mode)
                                  ? "it is a folder"
                                  : "it is not a regular file");
  }
  if (path.back() == '/') return CannotWrite(shown, "it names a folder");
  const std::string folder = FolderOf(path);
  if (stat(folder.c_str(), &found) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) {
      return SystemRefused(shown, errno);
    }
    return CannotWrite(
        shown, fmt::format("there is no folder {}", QuotedPath(folder)));
  }
  if (!S_ISDIR(found.st_mode)) {
    return CannotWrite(shown,
                       fmt::format("{} is not a folder", QuotedPath(folder)));
  }
  return OkStatus();
}

// A file under a name of its own, which goes with this unless it is kept.
class NewFile {
 public:
  // The next free name for this process beside `path`.
  explicit NewFile(const std::string& path) {
    for (int i = 0; i < 1000; ++i) {
      name_ = fmt::format("{}.castor-{}-{}", path, getpid(), i);
      descriptor_ =
          open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor_ >= 0 || errno != EEXIST) return;
    }
  }
  ~NewFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (descriptor_ >= 0 && !kept_) unlink(name_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  bool is_open() const { return descriptor_ >= 0; }

  // False leaves the reason in errno.
  bool Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return fsync(descriptor_) == 0;
  }
  bool Keep(const std::string& path) {
    kept_ = std::rename(name_.c_str(), path.c_str()) == 0;
    return kept_;
  }

 private:
  std::string name_;
  int descriptor_ = -1;
  bool kept_ = false;
};

// The new name survives a loss of power too. Where the file system cannot say,
// the file itself is safe.
void FlushFolder(const std::string& folder) {
  const int descriptor =
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

}  // namespace

Status CheckFileTarget(const std::string& path) {
  return CheckTarget(Resolved(path), path);
}

Status WriteFileAtomically(const std::string& path, std::string_view bytes) {
  const std::string target = Resolved(path);
  CASTOR_RETURN_IF_ERROR(CheckTarget(target, path));
  errno = 0;
  NewFile file(target);
  if (!file.is_open() || !file.Write(bytes) || !file.Keep(target)) {
    return SystemRefused(path, errno);
  }
  FlushFolder(FolderOf(target));
  return OkStatus();
}

}  // namespace castor
