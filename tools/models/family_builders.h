// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FAMILY_BUILDERS_H_
#define CASTOR_TOOLS_MODELS_FAMILY_BUILDERS_H_

// Part of the families (family_model.h): one builder for each, called through
// BuildFamilyModel. Names,
// order and defaults are those of the Transformers library. Malformed where a
// number makes no such model; the message names the key. Pure functions,
// thread-safe.

#include "chunk/base/status.h"
#include "tools/models/family_model.h"

namespace castor {

// With the language-model head.
Result<FamilyModel> BuildDeepseekV3(const FamilyRequest& request);
Result<FamilyModel> BuildFalcon(const FamilyRequest& request);
Result<FamilyModel> BuildGemma2(const FamilyRequest& request);
Result<FamilyModel> BuildGpt2(const FamilyRequest& request);
Result<FamilyModel> BuildGptNeox(const FamilyRequest& request);
Result<FamilyModel> BuildLlama(const FamilyRequest& request);
Result<FamilyModel> BuildMistral(const FamilyRequest& request);
Result<FamilyModel> BuildMixtral(const FamilyRequest& request);
Result<FamilyModel> BuildOpt(const FamilyRequest& request);
Result<FamilyModel> BuildQwen2(const FamilyRequest& request);
Result<FamilyModel> BuildQwen2Moe(const FamilyRequest& request);
Result<FamilyModel> BuildQwen3(const FamilyRequest& request);
Result<FamilyModel> BuildQwen3Moe(const FamilyRequest& request);

// As request.architecture says.
Result<FamilyModel> BuildBert(const FamilyRequest& request);
Result<FamilyModel> BuildT5(const FamilyRequest& request);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FAMILY_BUILDERS_H_
