// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/folder_hold.h"

#include <fcntl.h>
#include <fmt/format.h>
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

// Of this process. The system's lock ends where the process closes any
// descriptor of the file, so each file is opened once.
struct Holds {
  struct Held {
    int descriptor = -1;
    int holders = 0;
  };
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, Held> by_file;  // guarded by mutex
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

Result<std::unique_ptr<const FolderHold>> FolderHold::Take(
    const std::string& directory) {
  const std::string path =
      (std::filesystem::path(directory) / kHoldName).string();
  Holds& holds = TheHolds();
  const std::lock_guard lock(holds.mutex);
  struct stat facts = {};
  if (stat(path.c_str(), &facts) == 0) {
    const File known{facts.st_dev, facts.st_ino};
    if (const auto held = holds.by_file.find(known);
        held != holds.by_file.end()) {
      std::unique_ptr<const FolderHold> hold(new FolderHold(known));
      ++held->second.holders;
      return hold;
    }
  }
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) return Refused(path, "made");
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const auto give_up = [&](Status why) {
    close(descriptor);
    return why;
  };
  if (fcntl(descriptor, F_SETLK, &whole) != 0) {
    if (errno != EAGAIN && errno != EACCES) {
      return give_up(Refused(path, "locked"));
    }
    return give_up(Unavailable(fmt::format(
        "another run saves to {}, and is still there: give each run a folder "
        "of its own",
        QuotedPath(directory))));
  }
  if (fstat(descriptor, &facts) != 0) return give_up(Refused(path, "read"));
  std::unique_ptr<const FolderHold> hold(
      new FolderHold({facts.st_dev, facts.st_ino}));
  holds.by_file[hold->file_] = {descriptor, 1};
  return hold;
}

FolderHold::~FolderHold() {
  Holds& holds = TheHolds();
  const std::lock_guard lock(holds.mutex);
  const auto held = holds.by_file.find(file_);
  if (--held->second.holders > 0) return;
  close(held->second.descriptor);
  holds.by_file.erase(held);
}

}  // namespace castor
