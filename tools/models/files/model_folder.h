// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FILES_MODEL_FOLDER_H_
#define CASTOR_TOOLS_MODELS_FILES_MODEL_FOLDER_H_

// Which file of a model's folder describes it, by the rules with which
// Transformers loads such a folder. Reads directories; thread-safe.

#include <string>
#include <vector>

#include "chunk/base/status.h"

namespace castor {

struct ModelFolder {
  // Path of a .safetensors or *.index.json; may be empty.
  std::string weights;
  std::string config;  // path of config.json, may be empty; never both empty
  // Where `weights` is empty, names of weight files that the config stands for
  // and that are never opened: pickles and .gguf.
  std::vector<std::string> unread;
};

// InvalidArgument where the folder holds nothing to read, or several candidates
// and no rule to choose by; the message names them.
Result<ModelFolder> LookIntoFolder(const std::string& path);

// The config.json beside the file `path`, empty where there is none.
std::string ConfigBeside(const std::string& path);

// What people call the model: the name of the folder, or of the file unless
// that is what every model calls it ("model.safetensors", "config.json").
std::string ModelNameOf(const std::string& path);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FILES_MODEL_FOLDER_H_
