// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_CKPT_CKPT_H_
#define CASTOR_TOOLS_COMMANDS_CKPT_CKPT_H_

// The actions of `castor ckpt`. Each prints what it found, and returns what the
// exit code says of it. Owner thread only.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/files/tensor_files.h"
#include "tools/cli/console.h"
#include "tools/cli/text/document.h"

namespace castor {

struct CkptRequest {
  std::string directory;  // a checkpoint, or the folder of a training's
  std::string other;      // of diff
  std::optional<int64_t> step;
  std::string out;             // of convert
  std::optional<DType> dtype;  // of convert; none: as each parameter is
  Bytes max_file = kDefaultMaxFile;
  bool tensors = false;  // of ls: a line for each
  Form form = Form::kPage;
};

// The checkpoint that is meant, or all in a folder of them, oldest first.
Result<std::vector<FoundCheckpoint>> CheckpointsOf(const CkptRequest& request);

// Steps, sizes and tensors, from manifests alone: "castor.ckpt.ls/1".
Status RunCkptList(const CkptRequest& request, const Console& console);

// Reads every byte and names what is damaged: "castor.ckpt.verify/1".
// Infeasible where anything is.
Status RunCkptVerify(const CkptRequest& request, const Console& console);

// Writes the weights to a folder, as a plain model, whole or not at all:
// "castor.ckpt.convert/1". From the masters in full precision where the type
// asked for is not the parameter's own.
Status RunCkptConvert(const CkptRequest& request, const Console& console);

// Which tensors of two checkpoints differ, and by how much:
// "castor.ckpt.diff/1". Infeasible where any does.
Status RunCkptDiff(const CkptRequest& request, const Console& console);

// How far two tensors of one type are apart.
struct TensorDistance {
  int64_t elements = 0;   // compared
  int64_t differing = 0;  // whose bits differ
  int64_t nans = 0;       // of these, where either is not a number
  // Over those that are numbers. A ULP is a step to the next number of the
  // type; -0 and +0 are one apart.
  uint64_t max_ulp = 0;
  double max_difference = 0;
};

// Adds `count` elements of `dtype`. Types that are no floats are compared by
// their bits alone.
void AddDistance(const void* a, const void* b, DType dtype, int64_t count,
                 TensorDistance* distance);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_CKPT_CKPT_H_
