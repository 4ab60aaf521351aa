// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_MODEL_READER_H_
#define CASTOR_TOOLS_MODELS_MODEL_READER_H_

// The one door to models on disk. MODEL is a folder, a .safetensors file, an
// *.index.json, a config.json of a known family, a TSV or JSON list, "-" for a
// list on the standard input, or ORG/NAME of a model in the hub cache. Headers
// are read, weights never. Nothing that a file may hold ends in anything but a
// list or a Status. Thread-safe.

#include <string>

#include "chunk/base/status.h"
#include "tools/models/model_list.h"

namespace castor {

// No model in sight has more elements, and every sum of them, in any unit used
// here, is exact: as a 64-bit integer and as a JSON number.
inline constexpr int64_t kMaxModelElements = int64_t{1} << 53;

// InvalidArgument where the path or an option means nothing for this model,
// Malformed where the file is broken, or the trace is of another model; the
// message names the file and the tensor or byte.
Result<ModelList> ReadModel(const std::string& path,
                            const ReadModelOptions& options);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_MODEL_READER_H_
