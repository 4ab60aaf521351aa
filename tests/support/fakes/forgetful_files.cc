// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/fakes/forgetful_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "chunk/base/check.h"

namespace castor {

namespace fs = std::filesystem;

ForgetfulFiles::ForgetfulFiles(const fs::path& root)
    : root_(Know(AT_FDCWD, root.string())) {
  CASTOR_CHECK(fs::is_empty(root));
}

DataFileCalls ForgetfulFiles::Calls() {
  DataFileCalls calls;
  calls.fsync = [this](int fd) {
    const int synced = ::fsync(fd);
    if (synced != 0) return synced;
    Note(fd);
    if (on_sync_) on_sync_();
    return 0;
  };
  return calls;
}

void ForgetfulFiles::Recover(const fs::path& to) const {
  std::lock_guard lock(mutex_);
  RecoverNode(nodes_.at(root_), to);
}

ino_t ForgetfulFiles::Know(int parent, const std::string& name) {
  UniqueFd held(openat(parent, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat info = {};
  // Another thread may have removed it.
  if (fstat(held.get(), &info) != 0) return 0;
  Node& node = nodes_[info.st_ino];
  node.folder = S_ISDIR(info.st_mode);
  if (!node.held.valid()) node.held = std::move(held);
  return info.st_ino;
}

void ForgetfulFiles::Note(int fd) {
  std::lock_guard lock(mutex_);
  struct stat info = {};
  CASTOR_CHECK_EQ(fstat(fd, &info), 0);
  Node& node = nodes_[info.st_ino];
  if (!node.held.valid()) node.held = UniqueFd(dup(fd));
  const std::string path = fmt::format("/proc/self/fd/{}", fd);
  node.folder = S_ISDIR(info.st_mode);
  if (node.folder) {
    node.names.clear();
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      const std::string name = entry.path().filename().string();
      const ino_t number = Know(fd, name);
      if (number != 0) node.names[name] = number;
    }
  } else {
    // The file may be open for writing alone.
    std::ifstream file(path, std::ios::binary);
    node.bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
}

void ForgetfulFiles::RecoverNode(const Node& node, const fs::path& to) const {
  if (!node.folder) {
    std::ofstream(to, std::ios::binary) << node.bytes;
    return;
  }
  fs::create_directory(to);
  for (const auto& [name, number] : node.names) {
    RecoverNode(nodes_.at(number), to / name);
  }
}

}  // namespace castor
