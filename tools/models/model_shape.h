// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_MODEL_SHAPE_H_
#define CASTOR_TOOLS_MODELS_MODEL_SHAPE_H_

// The sizes of a transformer that its activations follow from, as far as its
// config.json or its parameters tell them. Reads files; otherwise pure,
// thread-safe.

#include <string>

#include "chunk/base/status.h"
#include "placement/derive/activation_model.h"
#include "tools/models/model_list.h"

namespace castor {

// `path` is what `model` was read from. Batch and sequence are left alone, as
// is whatever nothing tells: 0 then. Malformed where a config.json is broken.
Result<TransformerShape> ReadModelShape(const std::string& path,
                                        const ModelList& model);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_MODEL_SHAPE_H_
