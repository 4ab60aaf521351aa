// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_WRITER_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_WRITER_H_

// A checkpoint's files while they are written, by one process of several, each
// with a writer of its own: all plan the same files; one makes them, of the
// size they will have; then each writes its elements where they belong and adds
// up their digests; and once all files are on the drive, and the digests of all
// are added up, the one that made them makes a checkpoint of them. Until then
// they are a draft, which goes with the writer that made it. Move-only. For one
// thread at a time.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_plan.h"
#include "collectives/checkpoint/files/data_file.h"
#include "placement/state_kind.h"

namespace castor {

class CheckpointWriter {
 public:
  // Touches nothing. Fails as PlanCheckpoint does.
  static Result<CheckpointWriter> Plan(std::string directory, int64_t step,
                                       std::vector<ParamWithStates> params,
                                       StateNames names, Bytes max_file);

  // Where the checkpoint will be.
  std::string path() const;

  // Makes all files, with what stands before the data. Fails as
  // CheckpointDraft::Create and DataFile::Create do.
  Status CreateFiles();

  // Elements [begin, begin + count) of a state that parameter `param` has, of
  // `dtype`. REQUIRES: the files are made, perhaps by another process; as
  // DigestOfElements. IoError.
  Status Write(size_t param, StateKind state, DType dtype, int64_t begin,
               int64_t count, const std::byte* data);
  // What was written here is on the drive. IoError.
  Status Sync();

  // Of what was written here, by parameter and then StateKind; to be made those
  // of all processes before Describe.
  std::span<uint64_t> digests() { return digests_; }
  // Adds parameters and files to `manifest`. `steps`: updates by parameter;
  // `trainer`: the trainer's own bytes.
  void Describe(std::span<const int64_t> steps, std::string_view trainer,
                CheckpointManifest* manifest) const;

  // Writes what Describe said there is besides tensors, then the manifest, and
  // gives the checkpoint its name; returns where it is. IoError; `in_place` as
  // CheckpointDraft::Commit has it. REQUIRES: CreateFiles was called here; what
  // all wrote is on the drive.
  Result<std::string> Commit(const CheckpointManifest& manifest,
                             std::string_view trainer,
                             bool* in_place = nullptr);

 private:
  CheckpointWriter() = default;

  Result<DataFile*> FileAt(size_t index);
  uint64_t DigestOf(size_t file, const CheckpointManifest& manifest) const;

  std::string directory_;
  int64_t step_ = 0;
  std::vector<ParamWithStates> params_;
  StateNames names_;
  CheckpointPlan plan_;
  std::optional<CheckpointDraft> draft_;        // where files are made
  std::vector<std::optional<DataFile>> files_;  // by index, once used
  std::vector<uint64_t> digests_;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_WRITER_H_
