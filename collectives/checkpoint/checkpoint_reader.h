// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_READER_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_READER_H_

// A checkpoint opened for reading: its manifest and every file's header are
// read and agree with each other; data is read where it is asked for. Or a
// model of weights alone (weight_files.h), which reads as a checkpoint of step
// 0 without other states and without digests. Owns the open files; move-only.
// Thread-compatible once opened: reading changes nothing.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/files/data_file.h"

namespace castor {

// The manifest alone. Malformed where there is none or it is none, or where the
// folder bears the name of another step.
Result<CheckpointManifest> ReadManifest(const std::string& folder);

// `failure`, of the checkpoint `folder`, with what to use instead where it is
// damaged: the newest of the earlier steps beside it whose manifest and files
// agree, if there is one. Reads no data.
Status NameOlderCheckpoint(const Status& failure, const std::string& folder);

class CheckpointReader {
 public:
  // `folder` has a manifest. Malformed, naming file and tensor, where a file is
  // missing, cut short, or other than the manifest says.
  static Result<CheckpointReader> Open(const std::string& folder);
  // `file`: FindWeightFiles's. Malformed, naming file and tensor, where a file
  // is missing, cut short, or other than its index says.
  static Result<CheckpointReader> OpenWeights(const std::string& file);
  // Whatever `path` is: a checkpoint, that of `step` in a folder of them (the
  // latest where no step is named), or weights alone. InvalidArgument where it
  // is nothing of that.
  static Result<CheckpointReader> Find(const std::string& path,
                                       std::optional<int64_t> step);

  // Of weights alone, what holds their files.
  const std::string& folder() const { return folder_; }
  bool weights_only() const { return weights_only_; }
  // Weights alone have them where a checkpoint's manifest is beside the files.
  bool has_digests() const { return has_digests_; }
  // Of weights alone, by what their files say.
  const CheckpointManifest& manifest() const { return manifest_; }
  uint64_t manifest_digest() const { return manifest_digest_; }

  // Elements [begin, begin + count) of a state of parameter `param`, as they
  // were saved, in the state's own type. REQUIRES: inside its shape.
  Status Read(size_t param, const SavedState& state, int64_t begin,
              int64_t count, void* to) const;

  // The bytes that the trainer saved, empty where it saved none. DataLoss where
  // they are not those that were saved.
  Result<std::string> ReadTrainer() const;

  // All bytes of file `file` before its tensors: all of it where it has none.
  Result<std::string> ReadHead(size_t file) const;
  // Its tensors, in the order of their data.
  struct Tensor {
    size_t param = 0;
    size_t state = 0;  // index into the parameter's states
  };
  const std::vector<Tensor>& tensors(size_t file) const {
    return files_[file].tensors;
  }

 private:
  struct File {
    DataFile data;
    uint64_t head = 0;  // bytes before the data
    std::vector<Tensor> tensors;
  };

  CheckpointReader() = default;
  Status OpenFiles();
  // Adds a file of weights alone; `named`: by the index, null where there is
  // none.
  Status AddWeightFile(const std::string& name,
                       const std::vector<std::string>* named);
  // Of weights alone, from the manifest beside their files.
  Status TakeDigests();

  std::string folder_;
  bool weights_only_ = false;
  bool has_digests_ = true;
  CheckpointManifest manifest_;
  uint64_t manifest_digest_ = 0;
  std::vector<File> files_;
  std::vector<std::vector<uint64_t>> offsets_;  // by parameter and its state
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_READER_H_
