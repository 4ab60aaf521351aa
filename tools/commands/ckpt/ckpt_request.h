// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_CKPT_CKPT_REQUEST_H_
#define CASTOR_TOOLS_COMMANDS_CKPT_CKPT_REQUEST_H_

// What the user of `castor ckpt` asked for. Value.

#include <cstdint>
#include <optional>
#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/tensor_files.h"

namespace castor {

struct CkptRequest {
  std::string directory;  // a checkpoint, or the folder of a training's
  std::string other;      // of diff
  std::optional<int64_t> step;
  std::string out;             // of convert
  std::optional<DType> dtype;  // of convert; none: as each parameter is
  Bytes max_file = kDefaultMaxFile;
  bool tensors = false;  // of ls: a line for each
  bool json = false;
};

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_CKPT_CKPT_REQUEST_H_
