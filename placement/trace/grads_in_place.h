// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TRACE_GRADS_IN_PLACE_H_
#define CASTOR_PLACEMENT_TRACE_GRADS_IN_PLACE_H_

// Steps whose gradients are written over parameters: in their traces a gradient
// opens just behind a use of its chunk and closes just behind the end of one,
// as the engine records them then. Pure functions, thread-safe. Part of traces
// (trace.h).

#include "chunk/base/status.h"
#include "placement/trace.h"
#include "placement/trace/step_trace.h"

namespace castor {

// Whether all gradients of the trace are so.
bool GradsInPlace(const Trace& trace);

// The step as a trainer makes it that lets go of a chunk before it writes over
// it: where a gradient opens or closes, uses of its chunk that are under way
// end, and one begins or ends with the gradient. A step that is so already is
// left as it is. The own ends of leases are of the mode that was recorded, and
// go. InvalidArgument, naming chunk and moment, where a step cannot
// be made so: a chunk is used, or its gradient opens, once that was closed; or
// is evaluated once it has opened. REQUIRES: ValidateStep accepts the step.
Result<StepTrace> WithGradsInPlace(const StepTrace& step);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_TRACE_GRADS_IN_PLACE_H_
