// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TRACE_MISSING_GRADS_H_
#define CASTOR_PLACEMENT_TRACE_MISSING_GRADS_H_

// Which parameters of a step's chunks had no gradient. Pure functions,
// thread-safe. Part of the traces (trace.h).

#include <functional>
#include <string>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/chunk_layout.h"
#include "placement/trace.h"
#include "placement/trace/step_trace.h"

namespace castor {

// By chunks of the layout that the trace has gradients of. `had`: whether a
// parameter had a gradient. `name`: of a parameter.
std::vector<MissingGrad> MissingGradsOf(
    const ChunkLayout& layout, const Trace& trace,
    const std::function<bool(ParamId)>& had,
    const std::function<std::string(ParamId)>& name);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_TRACE_MISSING_GRADS_H_
