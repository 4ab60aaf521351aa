// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FAMILIES_TRANSFORMERS_SCRIPT_H_
#define CASTOR_TOOLS_MODELS_FAMILIES_TRANSFORMERS_SCRIPT_H_

// transformers_model.py, which the build puts into the program. Part of
// transformers_model.h.

#include <string_view>

namespace castor {

extern const std::string_view kTransformersScript;

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FAMILIES_TRANSFORMERS_SCRIPT_H_
