// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_NON_PARAMETERS_H_
#define CASTOR_TOOLS_MODELS_NON_PARAMETERS_H_

// Weight files also hold tensors that no optimizer updates: attention masks,
// rotary tables, quantisation scales, packed integers. They are told by rule,
// never by guess, and whoever drops them says so. Pure function, thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"

namespace castor {

// Why the tensor is no parameter, in a few words; empty where it is one.
std::optional<std::string> NonParameterReason(std::string_view name,
                                              const std::vector<int64_t>& shape,
                                              DType dtype);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_NON_PARAMETERS_H_
