// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_PARAM_FILTER_H_
#define CASTOR_TOOLS_MODELS_PARAM_FILTER_H_

// Part of the reader of models (model_reader.h). Which parameters are trained,
// by patterns on their names. What is frozen is packed in groups of its own.
// Pure functions, thread-safe.

#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "tools/models/model_list.h"

namespace castor {

// Sets `trainable` of every parameter: true where it matches a pattern of
// `only` (or `only` is empty) and none of `freeze`. InvalidArgument for a
// pattern that matches no parameter, with the nearest name.
Status FilterTrainable(const std::vector<std::string>& freeze,
                       const std::vector<std::string>& only, ModelList& list);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_PARAM_FILTER_H_
