// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FILES_WEIGHT_FILE_H_
#define CASTOR_TOOLS_MODELS_FILES_WEIGHT_FILE_H_

// The parameters that weight files hold, from their headers: .safetensors, an
// *.index.json with its shards. What is no parameter is listed as dropped.
// Reads files; otherwise pure, thread-safe.

#include <string>
#include <string_view>

#include "chunk/base/status.h"
#include "tools/models/model_list.h"

namespace castor {

bool IsWeightFile(std::string_view path);

// Parameters as the file has them, or in the order of shards; `name` and
// `family` stay empty. REQUIRES: IsWeightFile(path).
Result<ModelList> ReadWeightFile(const std::string& path);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FILES_WEIGHT_FILE_H_
