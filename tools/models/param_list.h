// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_PARAM_LIST_H_
#define CASTOR_TOOLS_MODELS_PARAM_LIST_H_

// Lists of parameters that people and scripts write: lines
// `name<TAB>d0,d1,...<TAB>DTYPE`, or JSON `[{"name","shape","dtype"}]`. A list
// is taken at its word: everything in it is a parameter. Pure functions,
// thread-safe.

#include <cstdint>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/param_spec.h"

namespace castor {

// A longer list is refused.
inline constexpr uint64_t kMaxListBytes = uint64_t{256} << 20;

// An empty field of dimensions is a scalar; empty lines are skipped. Malformed
// names the line.
Result<std::vector<ParamSpec>> ParseTsvList(std::string_view text);

// Malformed names the element, or the byte.
Result<std::vector<ParamSpec>> ParseJsonList(std::string_view text);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_PARAM_LIST_H_
