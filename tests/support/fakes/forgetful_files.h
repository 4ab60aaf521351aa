// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FAKES_FORGETFUL_FILES_H_
#define CASTOR_TESTS_SUPPORT_FAKES_FORGETFUL_FILES_H_

// What a drive holds of a folder when the power goes: of each file the bytes,
// and of each folder the names, that it had when it was last synced, and
// nothing else. Sees syncs through the calls of checkpoint files. Thread-safe.
//
//   ForgetfulFiles files(dir.path());
//   const ScopedDataFileCalls calls(files.Calls());
//   Save(dir.File("run"));
//   files.Recover(after.File("left"));  // what a restart would find

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "collectives/checkpoint/files/data_file.h"
#include "offload/nvme/queue/unique_fd.h"

namespace castor {

class ForgetfulFiles {
 public:
  // `root` is an empty folder.
  explicit ForgetfulFiles(const std::filesystem::path& root);

  // The kernel's, of which this notes what is synced. Outlived by this.
  DataFileCalls Calls();
  // Called, by the thread that syncs, after each sync.
  void OnSync(std::function<void()> on_sync) { on_sync_ = std::move(on_sync); }

  // Makes what the drive holds a folder of the name `to`.
  void Recover(const std::filesystem::path& to) const;

 private:
  struct Node {
    UniqueFd held;  // while it is open its number is given to no other
    bool folder = false;
    std::string bytes;
    std::map<std::string, ino_t> names;
  };

  ino_t Know(int parent, const std::string& name);
  void Note(int fd);
  void RecoverNode(const Node& node, const std::filesystem::path& to) const;

  mutable std::mutex mutex_;
  std::map<ino_t, Node> nodes_;  // guarded by mutex_
  ino_t root_;
  std::function<void()> on_sync_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FAKES_FORGETFUL_FILES_H_
