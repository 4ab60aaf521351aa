// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_FOLDER_HOLD_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_FOLDER_HOLD_H_

// A folder of checkpoints is one run's. Two runs would replace and remove each
// other's checkpoints, whichever saves first.

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "chunk/base/status.h"

namespace castor {

// While it lives, no other process has a hold of the folder. Holds of one
// process share the folder. The system ends the holds of a killed process, and
// a fork's child has none: workers that outlive a run keep nothing from the
// next. Thread-safe.
class FolderHold {
 public:
  // `directory` exists. Unavailable where another process has a hold; IoError
  // where nothing can be written there.
  static Result<std::unique_ptr<const FolderHold>> Take(
      const std::string& directory);

  ~FolderHold();
  FolderHold(const FolderHold&) = delete;
  FolderHold& operator=(const FolderHold&) = delete;

 private:
  using File = std::pair<dev_t, ino_t>;

  explicit FolderHold(File file) : file_(file) {}

  const File file_;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_FOLDER_HOLD_H_
