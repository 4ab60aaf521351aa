// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_MANIFEST_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_MANIFEST_H_

// What a checkpoint holds, as text: castor.json in its folder, written last, so
// that a folder with one is whole. A file and a parameter have a line each:
//
//   {
//   "schema": "castor.checkpoint/2",
//   "step": 20,
//   "world": 4,
//   "stage": 3,
//   "optimizer": "adamw",
//   "engine": {"optimizer_seed": 0},
//   "files": [
//   {"name": "model.safetensors", "bytes": 4096, "digest": "0123456789abcdef"}
//   ],
//   "parameters": [
//   {"name": "w", "dtype": "BF16", "shape": [4, 100], "trainable": true,
//    "steps": 20, "states": [{"state": "param", "dtype": "BF16", "file": 0,
//    "digest": "fedcba9876543210"}]}                        (in one line)
//   ],
//   "digest": "0f1e2d3c4b5a6978"
//   }
//
// The last line covers every byte before it. Manifests of castor.checkpoint/1
// are without, and read all the same.
//
// Parameters stand in initialization order; digests are those of
// tensor_digest.h; what is neither weights nor optimizer states, such as the
// trainer's own file, is digested as a file without tensors. `engine` holds
// numbers and texts by which the engine goes on, whichever it has. Pure
// functions, thread-safe.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/text/json_value.h"
#include "placement/state_kind.h"

namespace castor {

inline constexpr char kCheckpointSchema[] = "castor.checkpoint/2";
inline constexpr char kManifestName[] = "castor.json";
// The trainer's own bytes.
inline constexpr char kTrainerFileName[] = "trainer.bin";

// A longer text is refused.
inline constexpr uint64_t kMaxManifestBytes = uint64_t{256} << 20;

struct SavedFile {
  std::string name;  // below the checkpoint's folder
  uint64_t bytes = 0;
  uint64_t digest = 0;
};

// One tensor.
struct SavedState {
  std::string state = std::string(kParamName);  // what it is called
  DType dtype = DType::kF32;
  int32_t file = 0;  // index into files
  uint64_t digest = 0;
};

struct SavedParam {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  bool trainable = true;
  int64_t steps = 0;  // updates it has had
  std::vector<SavedState> states;

  // Null where it has none.
  const SavedState* Find(std::string_view state) const;
};

// Booleans, numbers and texts by name.
using EngineScalars = std::map<std::string, JsonValue>;
// Among them the learning rate that a group was given: this, of what is in no
// group, or with a dot and the group's name behind it.
inline constexpr char kLearningRateScalar[] = "learning_rate";

struct CheckpointManifest {
  int64_t step = 0;
  int64_t world = 1;
  int64_t stage = 0;
  std::string optimizer;
  EngineScalars engine;
  std::vector<SavedFile> files;
  std::vector<SavedParam> params;
  // False: read from an older version's text, which nothing proves unchanged.
  bool has_digest = true;

  uint64_t bytes() const;  // of all files
};

// "w.exp_avg": what the tensor is called in its file; weights have the
// parameter's own name.
std::string TensorNameOf(std::string_view param, std::string_view state);

// The names of all states, in the order in which parameters first have them.
std::vector<std::string> StatesIn(const CheckpointManifest& manifest);

// The same manifest gives the same text. REQUIRES: names are UTF-8.
std::string WriteManifest(const CheckpointManifest& manifest);

// How a manifest's text ends after `text`: with the digest of that.
std::string ManifestEnd(std::string_view text);

// Malformed, naming the place, for every text that is no manifest. Such are
// another or a newer schema, and a text in which any byte is not as it was
// written. Keys may not be unknown, missing or given twice, nor numbers out of
// their limits. Files lie below the folder; parameters are named once, and have
// weights; states have names that an optimizer may give, of which there are no
// more than kMaxOptimizerStates. Memory stays in proportion to the text.
Result<CheckpointManifest> ParseManifest(std::string_view text);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_MANIFEST_H_
