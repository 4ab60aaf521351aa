// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_MODEL_SOURCE_H_
#define CASTOR_TOOLS_MODELS_MODEL_SOURCE_H_

// Part of the reader of models (model_reader.h). Finds out what MODEL is and
// reads it with the reader of its format, without deciding anything about order
// yet. Reads files; otherwise pure, thread-safe.

#include <optional>
#include <string>

#include "chunk/base/status.h"
#include "tools/models/families/family_model.h"
#include "tools/models/model_list.h"

namespace castor {

enum class SourceKind {
  kList,     // TSV or JSON: everything in it is a parameter
  kWeights,  // safetensors headers: also tensors that are none
  kConfig,   // derived from a config.json alone
};

struct ModelSource {
  SourceKind kind = SourceKind::kList;
  // params as the file has them; for kConfig, in family order.
  ModelList list;
  // What a config.json beside the weights says, or the config itself; its
  // params are moved to `list` where it is the source.
  std::optional<FamilyModel> family;
};

// InvalidArgument where `path` names nothing that can be read as a model,
// Malformed where it is broken. Of the options, `expert_layout` and `python`
// matter: the family's list is for that layout, else for the one in the file,
// else fused; a file's list stays as it is.
Result<ModelSource> ReadModelSource(const std::string& path,
                                    const ReadModelOptions& options = {});

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_MODEL_SOURCE_H_
