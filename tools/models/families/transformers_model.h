// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FAMILIES_TRANSFORMERS_MODEL_H_
#define CASTOR_TOOLS_MODELS_FAMILIES_TRANSFORMERS_MODEL_H_

// The parameters of a model of a family that Castor does not derive itself, as
// the Transformers library of a Python on this machine registers them.
// transformers_model.py asks it; no code of the model is run, nothing is
// fetched, and no weights are made. Thread-safe.

#include <chrono>
#include <string>
#include <string_view>

#include "chunk/base/status.h"
#include "tools/cli/bounded_program.h"
#include "tools/models/families/config_values.h"
#include "tools/models/families/family_model.h"
#include "tools/models/files/param_list.h"

namespace castor {

inline constexpr ProgramLimits kTransformersLimits = {
    .time = std::chrono::seconds(30), .output_bytes = kMaxListBytes};

// `json` is a whole config.json and `config` what was read from it. `python` is
// a path, or a name that PATH leads to. A note says who registers the
// parameters; their type is the config's, and experts are as in the library.
// Each message goes on where another says what was to be known of the model:
//   Unavailable      nobody could be asked: there is no such Python, it has no
//                    such library, or it did not answer
//   InvalidArgument  the library does not know the model_type either; the
//                    message names the nearest that it or Castor knows
//   Malformed        the library makes no model of the config
Result<FamilyModel> AskTransformers(
    std::string_view json, const ConfigValues& config,
    const std::string& python,
    const ProgramLimits& limits = kTransformersLimits);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FAMILIES_TRANSFORMERS_MODEL_H_
