// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FAMILIES_FAMILY_MODEL_H_
#define CASTOR_TOOLS_MODELS_FAMILIES_FAMILY_MODEL_H_

// The parameters of a known family of models, derived from its config.json in
// the order in which the family's reference code registers them, and how weight
// files speak of them. Values and pure functions, thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "tools/models/families/config_values.h"
#include "tools/models/model_list.h"

namespace castor {

// Files of other versions of the reference code write `file` where this list
// has `listed`.
struct Spelling {
  std::string file;
  std::string listed;
};

struct FamilyModel {
  std::string family;  // "gpt2"
  // Who registers `params` so: "transformers 5.24.0"; empty where Castor itself
  // derives them.
  std::string library;
  // Files may leave this out of the names: "transformer.".
  std::string base_prefix;
  std::vector<ParamSpec> params;
  std::vector<TiedName> tied;  // names that are not in `params`
  std::vector<Spelling> spellings;
  // Names that begin so are in files and not in the model.
  std::vector<std::string> ignored_prefixes;
  bool quantized = false;  // the weight files' shapes are packed
  std::vector<std::string> notes;
};

// "gpt2", "llama", "mistral", ...
const std::vector<std::string>& KnownFamilies();
bool IsKnownFamily(std::string_view model_type);

// The first of the config's architectures decides whether there is a head;
// without one it is that of the family's pretraining. Classifiers and other
// heads are not covered, which a note says. `experts` matters to families that
// have any: kFused as Transformers registers them since
// version 5, kPerExpert as before, and as files on the hub have them. Malformed
// where a number makes no such model; the message names the
// key or the parameter. REQUIRES: IsKnownFamily(config.model_type()).
Result<FamilyModel> BuildFamilyModel(
    const ConfigValues& config, ExpertLayout experts = ExpertLayout::kFused);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FAMILIES_FAMILY_MODEL_H_
