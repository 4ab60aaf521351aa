// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/store/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace castor {
namespace {

namespace fs = std::filesystem;

// A run's directory holds its lock from before anybody else can see it until
// everything else in it is gone:
//
//   .castor.lock   held (flock) while a directory is made or reclaimed; removed
//                  by its holder, so whoever got it checks that it is still
//                  there
//   castor-run-XXXXXX/
//     lock         held (flock) by the run as long as it lives: the kernel
//                  drops it with the process, however that ends
//     ...          the run's files
//
// The lock is a file and not the directory itself, because NFS locks no
// directories. flock and not fcntl, whose locks belong to the process: a second
// run in the same process would take the first for dead.
constexpr std::string_view kParentLock = ".castor.lock";
constexpr std::string_view kPrefix = "castor-run-";
constexpr std::string_view kLock = "lock";
constexpr size_t kRandomCharacters = 6;

std::string Reason(int error) {
  return fmt::format("{} (errno {})", std::generic_category().message(error),
                     error);
}

Status CannotUse(const fs::path& parent, int error) {
  std::string_view remedy = "give the NVMe tier another directory";
  switch (error) {
    case ENOENT:
      remedy = "make it first (mkdir -p), or give the NVMe tier another one";
      break;
    case EACCES:
    case EPERM:
      remedy =
          "allow this user to write there, or give the NVMe tier another one";
      break;
    case EROFS:
      remedy =
          "mount it for writing, or give the NVMe tier a directory on another "
          "file system";
      break;
    case ENOSPC:
    case EDQUOT:
      remedy = "free some space there, or give the NVMe tier another one";
      break;
    case EOPNOTSUPP:
    case ENOLCK:
      remedy =
          "its file system has no locks; give the NVMe tier a directory on a "
          "local drive";
      break;
  }
  return Unavailable(fmt::format("cannot use the directory {}: {}; {}",
                                 parent.string(), Reason(error), remedy));
}

// Returns 0 or the errno.
int Lock(int fd, int operation) {
  int result = 0;
  do {
    result = ::flock(fd, operation);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

bool IsStillAt(int fd, const fs::path& path) {
  struct stat held, found;
  return ::fstat(fd, &held) == 0 && ::lstat(path.c_str(), &found) == 0 &&
         held.st_dev == found.st_dev && held.st_ino == found.st_ino;
}

// Removes everything below `directory`, its lock last: what is left of it after
// a crash in between can still be recognised and reclaimed.
Status RemoveTree(const fs::path& directory) {
  Status status;
  auto note = [&](const fs::path& what, const std::error_code& error) {
    if (error && error != std::errc::no_such_file_or_directory && status.ok()) {
      status =
          Unavailable(fmt::format("cannot remove {}: {}; remove it by hand",
                                  what.string(), error.message()));
    }
  };
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(directory, error), end;
       !error && entry != end; entry.increment(error)) {
    if (entry->path().filename() != kLock) entries.push_back(entry->path());
  }
  note(directory, error);
  for (const fs::path& entry : entries) {
    // What is no directory goes without a descriptor.
    error.clear();
    fs::remove(entry, error);
    if (error == std::errc::directory_not_empty) fs::remove_all(entry, error);
    note(entry, error);
  }
  if (!status.ok()) return status;
  for (const fs::path& last : {directory / kLock, directory}) {
    error.clear();
    fs::remove(last, error);
    note(last, error);
  }
  return status;
}

}  // namespace

namespace internal {

// A path in the list of those this process removes at its end. Nothing is
// allocated while the list is locked, so a thread without memory can read it.
class ListedPath {
 public:
  explicit ListedPath(const fs::path& path) : path_(path), owner_(::getpid()) {
    const std::lock_guard lock(mutex_);
    next_ = first_;
    if (next_ != nullptr) next_->before_ = this;
    first_ = this;
  }
  ListedPath(const ListedPath&) = delete;
  ListedPath& operator=(const ListedPath&) = delete;
  ~ListedPath() {
    const std::lock_guard lock(mutex_);
    (before_ == nullptr ? first_ : before_->next_) = next_;
    if (next_ != nullptr) next_->before_ = before_;
  }

  // Makes a directory of a free name, with the X at the end of the path
  // replaced. Returns 0 or the errno.
  int MakeUnique() {
    const std::lock_guard lock(mutex_);
    is_made_ = ::mkdtemp(path_.data()) != nullptr;
    return is_made_ ? 0 : errno;
  }
  const std::string& path() const { return path_; }

  // A file at the path is removed only by whoever can lock it.
  bool Open(int flags) {
    const std::lock_guard lock(mutex_);
    file_ = UniqueFd(::open(path_.c_str(), flags | O_CLOEXEC, 0644));
    return file_.valid();
  }
  int file() const { return file_.get(); }

  // From here on the process makes no others.
  static void RemoveAll() {
    mutex_.lock();
    for (const ListedPath* each = first_; each != nullptr; each = each->next_) {
      // What cannot be removed is reclaimed by the next run.
      if (each->owner_ != ::getpid()) continue;
      if (each->file_.valid() && Lock(each->file(), LOCK_EX | LOCK_NB) == 0 &&
          IsStillAt(each->file(), each->path_)) {
        ::unlink(each->path_.c_str());
      }
      if (!each->is_made_) continue;
      // Another thread may make a file meanwhile.
      if (!RemoveTree(each->path_).ok()) (void)RemoveTree(each->path_);
    }
  }

 private:
  static inline std::mutex mutex_;
  static inline ListedPath* first_ = nullptr;

  std::string path_;
  const pid_t owner_;
  UniqueFd file_;
  bool is_made_ = false;
  ListedPath* before_ = nullptr;
  ListedPath* next_ = nullptr;
};

}  // namespace internal

namespace {

using internal::ListedPath;

// Holds the parent's lock while it lives.
class ParentLock {
 public:
  explicit ParentLock(const fs::path& parent) : path_(parent / kParentLock) {}
  ParentLock(const ParentLock&) = delete;
  ParentLock& operator=(const ParentLock&) = delete;
  ~ParentLock() {
    // A file of another user that died here stays, and is used again.
    if (is_held_) ::unlink(path_.path().c_str());
  }

  Status Take() {
    const fs::path parent = fs::path(path_.path()).parent_path();
    for (;;) {
      // Without O_CREAT first: in a shared sticky directory the kernel may
      // refuse it on a file of somebody else. For writing first: NFS gives an
      // exclusive lock on nothing less.
      bool open = path_.Open(O_RDWR | O_NOFOLLOW);
      if (!open && errno == EACCES) open = path_.Open(O_RDONLY | O_NOFOLLOW);
      if (!open && errno == ENOENT) {
        open = path_.Open(O_RDWR | O_CREAT | O_EXCL);
        if (!open && errno == EEXIST) continue;
      }
      if (!open) return CannotUse(parent, errno);
      if (int error = Lock(path_.file(), LOCK_EX); error != 0) {
        return CannotUse(parent, error);
      }
      if (IsStillAt(path_.file(), path_.path())) {
        is_held_ = true;
        return OkStatus();
      }
    }
  }

 private:
  ListedPath path_;
  bool is_held_ = false;
};

bool IsRunDirectory(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  if (!name.starts_with(kPrefix) ||
      name.size() != kPrefix.size() + kRandomCharacters) {
    return false;
  }
  std::error_code error;
  return fs::symlink_status(entry.path(), error).type() ==
         fs::file_type::directory;
}

int64_t BytesOn(const fs::path& directory) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error), end;
       !error && entry != end; entry.increment(error)) {
    struct stat facts;
    if (::lstat(entry->path().c_str(), &facts) == 0) {
      bytes += static_cast<int64_t>(facts.st_blocks) * 512;
    }
  }
  return bytes;
}

// REQUIRES: the parent's lock is held, so that no directory is half made.
void ReclaimIfDead(const fs::path& directory, Log* log) {
  const fs::path lock_path = directory / kLock;
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!lock.valid()) {
    // A run that died before it had a lock left an empty directory; anything
    // else is not ours (rmdir refuses), or is just being removed by its run.
    if (errno == ENOENT) ::rmdir(directory.c_str());
    return;
  }
  if (Lock(lock.get(), LOCK_EX | LOCK_NB) != 0) return;  // alive
  const int64_t bytes = BytesOn(directory);
  const Status status = RemoveTree(directory);
  if (log == nullptr) return;
  if (status.ok()) {
    log->Warning(fmt::format(
        "removed {}, {:.1f} MiB that a run which was killed left behind",
        directory.string(), static_cast<double>(bytes) / (1 << 20)));
  } else {
    log->Warning(fmt::format("a run which was killed left {} behind: {}",
                             directory.string(), status.message()));
  }
}

void ReclaimDead(const fs::path& parent, Log* log) {
  std::error_code error;
  std::vector<fs::path> candidates;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    if (IsRunDirectory(*entry)) candidates.push_back(entry->path());
  }
  std::sort(candidates.begin(), candidates.end());
  for (const fs::path& directory : candidates) ReclaimIfDead(directory, log);
}

}  // namespace

Result<RunDirectory> RunDirectory::Create(const fs::path& parent, Log* log) {
  std::error_code error;
  const fs::path real = fs::canonical(parent, error);
  if (error) return CannotUse(parent, error.value());
  if (!fs::is_directory(real)) return CannotUse(parent, ENOTDIR);

  ParentLock parent_lock(real);
  CASTOR_RETURN_IF_ERROR(parent_lock.Take());
  ReclaimDead(real, log);

  auto listed = std::make_unique<ListedPath>(
      (real / kPrefix).string().append(kRandomCharacters, 'X'));
  if (int error = listed->MakeUnique(); error != 0) {
    return CannotUse(real, error);
  }
  const fs::path name = listed->path();
  const fs::path lock_path = name / kLock;
  UniqueFd lock(
      ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  int failure = lock.valid() ? Lock(lock.get(), LOCK_EX | LOCK_NB) : errno;
  if (failure != 0) {
    ::unlink(lock_path.c_str());
    ::rmdir(name.c_str());
    return CannotUse(real, failure);
  }
  return RunDirectory(std::move(listed), std::move(lock), log);
}

RunDirectory::RunDirectory(std::unique_ptr<ListedPath> listed, UniqueFd lock,
                           Log* log)
    : path_(listed->path()),
      lock_(std::move(lock)),
      listed_(std::move(listed)),
      owner_(::getpid()),
      log_(log) {}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept = default;

RunDirectory& RunDirectory::operator=(RunDirectory&& other) noexcept {
  if (this != &other) {
    CloseAndLog();
    path_ = std::move(other.path_);
    lock_ = std::move(other.lock_);
    listed_ = std::move(other.listed_);
    owner_ = other.owner_;
    log_ = other.log_;
  }
  return *this;
}

void RunDirectory::RemoveAllOfThisProcess() { ListedPath::RemoveAll(); }

RunDirectory::~RunDirectory() { CloseAndLog(); }

Status RunDirectory::Close() {
  if (!lock_.valid()) return OkStatus();
  Status status;
  // The lock is held until the directory is gone.
  const bool owned = owner_ == ::getpid();
  if (owned) status = RemoveTree(path_);
  lock_.Close();
  // Listing takes a descriptor, and the lock's may have been the last one.
  // Whoever finds the directory without a holder only removes it too.
  if (!status.ok()) status = RemoveTree(path_);
  listed_.reset();
  return status;
}

void RunDirectory::CloseAndLog() {
  const Status status = Close();
  if (!status.ok() && log_ != nullptr) log_->Warning(status.message());
}

}  // namespace castor
