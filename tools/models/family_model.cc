// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/family_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "chunk/base/check.h"
#include "tools/cli/quote.h"
#include "tools/models/tensor_fields.h"

namespace castor {
namespace {

struct Family {
  std::string_view model_type;
  // The architecture that the builder describes: with the language-model head.
  std::string_view architecture;
  Result<FamilyModel> (*build)(const ConfigValues&, DType);
};

constexpr std::array<Family, 3> kFamilies = {{
    {"gpt2", "GPT2LMHeadModel", BuildGpt2},
    {"llama", "LlamaForCausalLM", BuildLlama},
    {"mistral", "MistralForCausalLM", BuildMistral},
}};

const Family* FindFamily(std::string_view model_type) {
  const auto* found =
      std::find_if(kFamilies.begin(), kFamilies.end(),
                   [&](const Family& f) { return f.model_type == model_type; });
  return found == kFamilies.end() ? nullptr : found;
}

}  // namespace

const std::vector<std::string>& KnownFamilies() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Family& family : kFamilies) {
      names.emplace_back(family.model_type);
    }
    return names;
  }();
  return kNames;
}

bool IsKnownFamily(std::string_view model_type) {
  return FindFamily(model_type) != nullptr;
}

Result<FamilyModel> BuildFamilyModel(const ConfigValues& config) {
  CASTOR_ASSIGN_OR_RETURN(const std::string model_type, config.model_type());
  const Family* const family = FindFamily(model_type);
  CASTOR_CHECK(family != nullptr);
  CASTOR_ASSIGN_OR_RETURN(const DType dtype, config.dtype());
  CASTOR_ASSIGN_OR_RETURN(FamilyModel model, family->build(config, dtype));
  for (const ParamSpec& spec : model.params) {
    const Result<Bytes> bytes = TensorBytes(spec.shape, spec.dtype);
    if (!bytes.ok()) {
      return bytes.status().WithContext(
          fmt::format("parameter {}", Quoted(spec.name)));
    }
  }
  model.family = model_type;
  model.quantized = config.quantized();
  CASTOR_ASSIGN_OR_RETURN(const std::string architecture,
                          config.architecture());
  if (!architecture.empty() && architecture != family->architecture &&
      config.other_parts().empty()) {
    model.notes.push_back(fmt::format(
        "the config names the architecture {}; its parameters are listed as "
        "those of {}",
        Quoted(architecture), family->architecture));
  }
  if (!config.other_parts().empty()) {
    model.notes.push_back(fmt::format(
        "only the language part of the model (text_config) is listed; not "
        "covered: {}",
        fmt::join(config.other_parts(), ", ")));
  }
  return model;
}

}  // namespace castor
