// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_FOLDER_HOLD_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_FOLDER_HOLD_H_

// A folder of checkpoints is one run's. Two runs would replace and remove each
// other's checkpoints, whichever saves first.

#include <memory>
#include <string>

#include "chunk/base/status.h"

namespace castor {

// While it lives, no other process has a hold of the folder. Engines of one
// process share theirs, and the system ends what a killed process had.
// Thread-safe.
class FolderHold {
 public:
  // `directory` exists. Unavailable where another process has a hold; IoError
  // where nothing can be written there.
  static Result<std::shared_ptr<const FolderHold>> Take(
      const std::string& directory);

  ~FolderHold();
  FolderHold(const FolderHold&) = delete;
  FolderHold& operator=(const FolderHold&) = delete;

 private:
  explicit FolderHold(int file) : file_(file) {}

  const int file_;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_FOLDER_HOLD_H_
