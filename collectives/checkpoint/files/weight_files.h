// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_FILES_WEIGHT_FILES_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_FILES_WEIGHT_FILES_H_

// Which safetensors files hold a model of weights alone, as others save it and
// Hugging Face lays it out: one file, or several with an index beside them that
// says which tensor is where. Pure functions but for looking at files,
// thread-safe.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"

namespace castor {

// A longer index is refused.
inline constexpr uint64_t kMaxWeightIndexBytes = 100'000'000;

// What `path` names: itself, where it is a file called *.safetensors or
// *.index.json; of a folder, its model.safetensors.index.json, or else its
// model.safetensors. Empty where there is none.
std::string FindWeightFiles(const std::string& path);

// File names, all beside the index, in the order of their names; and the names
// of the tensors that the index sends to each.
using WeightIndex =
    std::map<std::string, std::vector<std::string>, std::less<>>;

// Malformed where `text` is no index, or names what does not lie beside it.
Result<WeightIndex> ParseWeightIndex(std::string_view text);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_FILES_WEIGHT_FILES_H_
