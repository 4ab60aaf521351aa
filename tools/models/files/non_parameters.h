// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FILES_NON_PARAMETERS_H_
#define CASTOR_TOOLS_MODELS_FILES_NON_PARAMETERS_H_

// Part of the weight files (weight_file.h), which also hold tensors that no
// optimizer updates: attention masks, rotary tables, running statistics,
// quantisation data, packed integers. They are told by rule, from names and
// types that such tensors have in Transformers, torch and the quantisation
// libraries, never by guess, and whoever drops them says so. Pure function,
// thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"

namespace castor {

// The reason of tensors that stand for parameters whose shape they do not have.
inline constexpr std::string_view kPackedWeights = "packed weights";

// Why the tensor is no parameter, in a few words; empty where it is one.
std::optional<std::string> NonParameterReason(std::string_view name,
                                              const std::vector<int64_t>& shape,
                                              DType dtype);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FILES_NON_PARAMETERS_H_
