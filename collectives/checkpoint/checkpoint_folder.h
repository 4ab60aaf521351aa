// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_FOLDER_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_FOLDER_H_

// Part of the manifest of checkpoints (checkpoint_manifest.h).
//
// The folder that a training saves to, with a folder for each checkpoint:
//
//   DIR/step-00000020/castor.json                     the manifest, last
//                     model.safetensors               weights
//                     optimizer/exp_avg.safetensors   and so on
//                     trainer.bin                     the trainer's own
//   DIR/.saving-step-00000030/                        being written
//   DIR/.castor-lock                                  held while one saves
//
// A checkpoint is written under another name, put on the drive, and then given
// its own: a folder called step-N is whole, and a save that is killed leaves
// those before it as they were. Who saves next removes what it left.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/checkpoint/folder_hold.h"

namespace castor {

// "step-00000020".
std::string CheckpointName(int64_t step);
// Empty where it is no such name.
std::optional<int64_t> StepOfCheckpointName(std::string_view name);

struct FoundCheckpoint {
  int64_t step = 0;
  std::string path;
};

// The checkpoints in `directory` that have a manifest, by step. InvalidArgument
// where `directory` is no folder, IoError where it cannot be read. Thread-safe.
Result<std::vector<FoundCheckpoint>> ListCheckpoints(
    const std::string& directory);

// The checkpoint of `step` in `directory`, or the latest where no step is
// named; or `directory` itself, where it is a checkpoint (of that step).
// InvalidArgument where there is none. Thread-safe.
Result<std::string> FindCheckpoint(const std::string& directory,
                                   std::optional<int64_t> step);

// Where a checkpoint of `step` is written before it is whole.
std::string DraftPath(const std::string& directory, int64_t step);

// InvalidArgument where `directory` has something by the name of `step`'s
// checkpoint that is none: a save would replace it. Thread-safe.
Status CheckMayReplace(const std::string& directory, int64_t step);

// The right to save to `directory`, before a run has anything to save: makes it
// where its parent exists, and writes a folder there for a moment. Fails as
// CheckpointDraft::Create and FolderHold::Take do, and with InvalidArgument
// where something has the name of a draft, of whatever step, and is none.
Result<std::unique_ptr<const FolderHold>> HoldToSave(
    const std::string& directory);

// A checkpoint being written, by one process at a time. Unless it is committed,
// all of it goes with this. Owner thread only.
class CheckpointDraft {
 public:
  // Makes `directory` where its parent exists, takes its lock, removes what
  // killed saves left, and makes an empty folder for the checkpoint, and one
  // for `subfolder` in it. Unavailable while another process saves there;
  // InvalidArgument where `directory` cannot be a folder; IoError.
  static Result<CheckpointDraft> Create(const std::string& directory,
                                        int64_t step,
                                        const std::string& subfolder);
  CheckpointDraft(CheckpointDraft&& other) noexcept;
  CheckpointDraft& operator=(CheckpointDraft&& other) noexcept;
  ~CheckpointDraft();

  const std::string& path() const { return path_; }

  // Puts the folders on the drive and gives the checkpoint its name, replacing
  // one of the same step in one step; fails as CheckMayReplace does. Returns
  // where it is now. REQUIRES: its files are on the drive. `in_place` becomes
  // true once the checkpoint has its name; a failure after that removes
  // nothing.
  Result<std::string> Commit(bool* in_place = nullptr);

 private:
  CheckpointDraft() = default;

  std::string directory_;
  std::string subfolder_;
  std::string path_;  // empty once committed
  int64_t step_ = 0;
  int lock_ = -1;
};

// Of the checkpoints of `directory` up to step `newest`, removes all but the
// `keep` latest. Later ones are not of the training that just saved `newest`:
// they stay, and do not count. IoError where one could not be removed.
// REQUIRES: keep > 0, and the caller has the folder's lock or is alone.
Status RemoveOldCheckpoints(const std::string& directory, int64_t keep,
                            int64_t newest);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_FOLDER_H_
