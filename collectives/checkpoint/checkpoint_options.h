// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_OPTIONS_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_OPTIONS_H_

// Part of the writer of checkpoints (checkpoint_writer.h).
//
// What a trainer tells an engine about a checkpoint, and what it is told. Plain
// structs with defaults.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/units.h"
#include "collectives/checkpoint/files/tensor_files.h"

namespace castor {

struct SaveOptions {
  // Holds the checkpoints of a training, a folder each; made if its parent is
  // there. All ranks see it.
  std::string directory = {};
  // The trainer's own bytes, handed back by Load: where in the data it is, its
  // random state. Those of rank 0 are kept.
  std::string trainer = {};
  // Most bytes of tensors in one file, unless a tensor has more.
  Bytes max_file = kDefaultMaxFile;
  // How many checkpoints stay in the folder, this one included; 0: all. Those
  // of later steps are another training's: they stay, and do not count.
  int64_t keep = 0;
  // False: Save returns once the files are made, and the states are written
  // while next steps compute, on a thread of the save's own, with no more
  // memory than staging slots. Updates of a state wait until it is written, but
  // no step waits until it is on the drive; the next Save, Load or Park, and
  // FinishSave wait until the checkpoint is whole.
  bool wait = true;
};

struct SaveResult {
  std::string path;  // of the checkpoint
  int64_t step = 0;
  Bytes bytes;  // of all its files
};

struct LoadOptions {
  // A checkpoint, or the folder that holds a training's; or, where
  // optimizer_states is false, a model of weights alone (weight_files.h), which
  // has digests to verify where it is a file of a checkpoint.
  std::string directory;
  std::optional<int64_t> step = {};  // none: the latest
  // Reads everything twice: nothing of the engine changes unless all bytes are
  // those that were saved.
  bool verify = true;
  // False: weights only. Moments and the counts of updates begin anew.
  bool optimizer_states = true;
  // Whether steps are counted from 1 again, as of another training.
  bool steps_anew = false;
  // Whether parameters and moments may have been saved in other types than the
  // engine has; what is rounded is then not what was saved.
  bool convert = false;
  // Whether moments and masters that a checkpoint lacks begin anew, as those of
  // a parameter that was frozen then and is trained now.
  bool begin_missing = false;
  // Only the trainer's bytes are wanted, of a checkpoint that fits the engine:
  // nothing of the engine changes. A trainer looks into them before it loads.
  bool trainer_only = false;
  // Further names of parameters, as tied weights have: a checkpoint has one of
  // a parameter's names, or several with the same values.
  struct Alias {
    std::string name;
    std::string param;  // the engine's name for it
  };
  std::vector<Alias> aliases = {};
  // Tensors that a checkpoint may have beside the parameters, as buffers, and
  // that are left alone.
  std::vector<std::string> others = {};
};

struct LoadResult {
  std::string path;
  int64_t step = 0;
  int64_t world = 1;    // ranks that saved it
  std::string trainer;  // as given to Save
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_OPTIONS_H_
