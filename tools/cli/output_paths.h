// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_OUTPUT_PATHS_H_
#define CASTOR_TOOLS_CLI_OUTPUT_PATHS_H_

// The rule that a command reads no file which the command replaces.
// Thread-safe.

#include <filesystem>
#include <span>
#include <string>

#include "chunk/base/status.h"

namespace castor {

// A path on a command line.
struct NamedPath {
  std::string flag;  // "--html"; "MODEL"
  std::string path;  // empty: not given
  // Whether a file of an input folder is read; null: a model's files are.
  bool (*reads)(const std::filesystem::path& file) = nullptr;
};

// InvalidArgument, with both flags, where a command that reads `inputs` and
// writes `outputs` would lose something: an output is an input, or the output
// of another flag. A record FILE is also FILE.0, FILE.1 and so on; an index,
// the .safetensors files beside the index; a folder, the model's files and the
// checkpoints inside. Links are followed, and hard links known. Outputs that
// are no regular files, such as pipes, lose nothing. A command asks before the
// first byte is written.
Status CheckOutputs(std::span<const NamedPath> inputs,
                    std::span<const NamedPath> outputs);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_OUTPUT_PATHS_H_
