// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/folder_hold.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "chunk/text/quote.h"

namespace castor {
namespace {

constexpr char kHoldName[] = ".castor-run";

// Of this process, by device and number of the file that is locked.
struct Holds {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<const FolderHold>> by_file;
};

Holds& TheHolds() {
  static Holds& holds = *new Holds;  // engines may outlive static objects
  return holds;
}

Status Refused(const std::string& path, std::string_view what) {
  return IoError(
      fmt::format("{} could not be {}: {}; check the permissions, or name "
                  "another folder",
                  QuotedPath(path), what, std::strerror(errno)));
}

}  // namespace

Result<std::shared_ptr<const FolderHold>> FolderHold::Take(
    const std::string& directory) {
  const std::string path =
      (std::filesystem::path(directory) / kHoldName).string();
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return Refused(path, "made");
  std::shared_ptr<const FolderHold> hold(new FolderHold(file));
  struct stat facts = {};
  if (fstat(file, &facts) != 0) return Refused(path, "read");
  Holds& holds = TheHolds();
  const std::lock_guard lock(holds.mutex);
  std::weak_ptr<const FolderHold>& known =
      holds.by_file[{facts.st_dev, facts.st_ino}];
  if (std::shared_ptr<const FolderHold> mine = known.lock()) return mine;
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Refused(path, "locked");
    return Unavailable(fmt::format(
        "another run saves to {}, and is still there: give each run a folder "
        "of its own",
        QuotedPath(directory)));
  }
  known = hold;
  return hold;
}

FolderHold::~FolderHold() { close(file_); }

}  // namespace castor
