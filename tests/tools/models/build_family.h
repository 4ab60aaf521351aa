// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_TOOLS_MODELS_BUILD_FAMILY_H_
#define CASTOR_TESTS_TOOLS_MODELS_BUILD_FAMILY_H_

// A family's builder run on a config that is right. Pure functions,
// thread-safe.

#include <string>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "tests/tools/models/param_lines.h"
#include "tools/models/config_values.h"
#include "tools/models/family_model.h"
#include "tools/models/model_list.h"

namespace castor {

using FamilyBuilder = Result<FamilyModel> (*)(const FamilyRequest&);

inline FamilyModel Build(FamilyBuilder builder, const std::string& json,
                         ExpertLayout experts = ExpertLayout::kFused,
                         const std::string& architecture = "") {
  const Result<ConfigValues> config = ConfigValues::Parse(json);
  CASTOR_CHECK(config.ok());
  Result<FamilyModel> model = builder(
      {.config = *config, .experts = experts, .architecture = architecture});
  CASTOR_CHECK(model.ok());
  return *std::move(model);
}

inline std::vector<std::string> Lines(const FamilyModel& model,
                                      const std::string& prefix = "") {
  return ParamLines(model.params, prefix);
}

}  // namespace castor

#endif  // CASTOR_TESTS_TOOLS_MODELS_BUILD_FAMILY_H_
