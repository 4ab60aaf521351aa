// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FAMILY_MODEL_H_
#define CASTOR_TOOLS_MODELS_FAMILY_MODEL_H_

// The parameters of a known family of models, derived from its config.json in
// the order in which the family's reference code registers them. Values and
// pure functions, thread-safe.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "tools/models/config_values.h"

namespace castor {

// More layers than any model has; a config may say two billion.
inline constexpr int64_t kMaxLayers = 10'000;

struct FamilyModel {
  std::string family;  // "gpt2"
  // Files may leave this out of the names: "transformer.".
  std::string base_prefix;
  std::vector<ParamSpec> params;
  // A name that shares another's parameter and is not in `params`; empty where
  // nothing is tied.
  std::string tied_name;
  std::string tied_to;
  bool quantized = false;  // the weight files' shapes are packed
  std::vector<std::string> notes;

  void Add(std::string name, std::vector<int64_t> shape, DType dtype) {
    params.push_back({std::move(name), std::move(shape), dtype});
  }
};

// "gpt2", "llama", "mistral".
const std::vector<std::string>& KnownFamilies();
bool IsKnownFamily(std::string_view model_type);

// Malformed where a number makes no such model; the message names the key or
// the parameter. REQUIRES: IsKnownFamily(config.model_type()).
Result<FamilyModel> BuildFamilyModel(const ConfigValues& config);

// One builder per family, called by BuildFamilyModel.
Result<FamilyModel> BuildGpt2(const ConfigValues& config, DType dtype);
Result<FamilyModel> BuildLlama(const ConfigValues& config, DType dtype);
Result<FamilyModel> BuildMistral(const ConfigValues& config, DType dtype);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FAMILY_MODEL_H_
