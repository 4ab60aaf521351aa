// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FILES_PARAM_LIST_H_
#define CASTOR_TOOLS_MODELS_FILES_PARAM_LIST_H_

// Lists of parameters that people and scripts write: lines
// `name<TAB>d0,d1,...<TAB>DTYPE`, or JSON `[{"name","shape","dtype"}]`. A list
// is taken at its word: everything in it is a parameter.
//
// A fourth field of a line tells what the parameter's optimizer does with it,
// `whole,states=1` or either: it updates the parameter as a whole, and keeps so
// many states of it (chunk/param_spec.h).
//
// Lines that begin with a tab follow those of the parameters, and say what a
// micro-batch of the trainer does with them (placement/derive/step_model.h):
//
//   <TAB>step<TAB>separate                  or reuse: gradients are written
//                                           over parameters
//   <TAB>hold<TAB>wte.weight<TAB>wpe.weight an operation, which holds these
//   <TAB>grads<TAB>wte.weight               and opens the gradients of these
//
// Every operation has a line `hold`, with or without names; `grads` follows the
// `hold` that it belongs to, or is left out. Pure functions, thread-safe.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "placement/derive/step_model.h"

namespace castor {

// A longer list is refused.
inline constexpr uint64_t kMaxListBytes = uint64_t{256} << 20;

struct ParamList {
  std::vector<ParamSpec> params;
  DeclaredStep step;  // by number in `params`; without uses: none is told
};

// An empty field of dimensions is a scalar; empty lines are skipped. Malformed
// names the line.
Result<ParamList> ParseTsvList(std::string_view text);

// Read back as it was by ParseTsvList. REQUIRES: unique names without tabs and
// ends of lines; shapes and types that it accepts; ids below the number of
// parameters.
std::string WriteTsvList(std::span<const ParamSpec> params,
                         const DeclaredStep& step);

// Malformed names the element, or the byte.
Result<std::vector<ParamSpec>> ParseJsonList(std::string_view text);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FILES_PARAM_LIST_H_
